"""Run the official conformance suite over every transport, and write docs/reference/conformance.md.

With --rows only the table of rows is rewritten; the results of the last run stay.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.ai_session.conformance.rows import Row

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/conformance.md"
ROWS_BEGIN, ROWS_END = "<!-- rows -->\n", "<!-- end of rows -->\n"

HEAD = """\
# Conformance

What this server is measured by: the official conformance suite of the Model Context Protocol, and forty rows of our
own. `scripts/conformance_table.py` writes this page from a run; `make torture` runs
both, server and client, and `make test` the rows and, of the suite, the newest revision over HTTP.

## The official suite

`@modelcontextprotocol/conformance` {version}. It knows HTTP only: a bridge stands before relay and pipe. Tools,
resources and prompts with the answers it expects are a test's; transport, dispatch, questions and tasks are the
product's. *Others* are scenarios that the suite runs and does not score: extensions, tasks among them, and drafts.

"""

CLIENT = """
The client side of the suite, with ccswarm as the client, is `tests/clients/test_conformance_client.py`.
"""


def rows_table(rows: Sequence[Row]) -> str:
    """Return the table of the forty rows."""
    lines = ["| # | What is wanted | Shown by |", "|---|---|---|"]
    for row in rows:
        proofs: dict[str, list[str]] = {}
        for proof in row.proofs:
            path, _, name = proof.partition("::")
            proofs.setdefault(path.rpartition("/")[2], []).append(name)
        shown = "; ".join(f"`{path}`: {', '.join(names)}" for path, names in proofs.items())
        wanted = row.wanted + (f". Differs: {row.differs}" if row.differs else "")
        lines.append(f"| {row.number} | {wanted} | {shown} |")
    return ROWS_BEGIN + "\n".join(lines) + "\n" + ROWS_END


def runs_table(runs: Sequence[Any]) -> str:
    """Return the table of the suite's results, and the table of exclusions."""
    lines = ["| Way in | Revision | Required | Others | Checks |", "|---|---|---|---|---|"]
    excluded: dict[str, set[str]] = {}
    for run in runs:
        passed, required = set(run.passed), set(run.required)
        others = run.scenarios.keys() - required
        good = sum(check.passed for check in run.checks)
        lines.append(
            f"| {run.transport} | {run.revision} | {len(passed & required)} of {len(required)} | "
            f"{len(passed & others)} of {len(others)} | {good} of {len(run.checks)} |"
        )
        for check in run.checks:
            if not check.passed:
                reason = check.excluded or "NOT EXCLUDED"
                excluded.setdefault(f"| {check.scenario} | {check.name} | {reason} |", set()).add(run.transport)
    lines += ["", "Every check that failed is excluded by name in `tests/clients/conformance_excluded.json`:", ""]
    lines += ["| Scenario | Check | Over | Why |", "|---|---|---|---|"]
    for line, transports in sorted(excluded.items()):
        scenario, check, reason = (part.strip() for part in line.strip("|").split("|"))
        lines.append(f"| {scenario} | {check} | {', '.join(sorted(transports))} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.ai_session.conformance.rows import ROWS

    if "--rows" in sys.argv:
        text = PAGE.read_text()
        before, _, rest = text.partition(ROWS_BEGIN)
        PAGE.write_text(before + rows_table(ROWS) + rest.partition(ROWS_END)[2])
        return
    from tests.clients import conformance_run
    from tests.conftest import client_environment

    version = conformance_run.installed()
    with tempfile.TemporaryDirectory(prefix="conf-", dir="/tmp") as home:
        environment = client_environment(Path(home))
        runs = [
            conformance_run.run(transport, revision, environment)
            for transport in conformance_run.TRANSPORTS
            for revision in conformance_run.REVISIONS
        ]
    suite = HEAD.format(version=version) + runs_table(runs) + CLIENT
    PAGE.write_text(f"{suite}\n## Forty rows\n\nThe tests named here are checked to be there.\n\n{rows_table(ROWS)}")


if __name__ == "__main__":
    main()
