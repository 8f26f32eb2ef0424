"""The amounts spent, and the removal of old executions."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from ccswarm.engines.dbos.store import LOCK, MARK, NAME, SPENDING, SPENT, Store

ACTIVE = ("ENQUEUED", "PENDING", "DELAYED")
BATCH = 100
"""The executions removed in one transaction, so that other processes can write in between."""


def spend(
    store: Store,
    step: str,
    execution: str,
    scope: str,
    amounts: Mapping[str, float],
    caps: Mapping[str, float],
    anyway: bool,
) -> str:
    """Add ``amounts`` once per ``step``. Return the cap they exceed, else ""; such amounts count only ``anyway``."""
    with store.begin() as c:
        if store.remote:  # one at a time for each scope, even for the first, which has no row to lock
            c.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, sa.func.hashtext(scope))))
        known = c.execute(sa.select(SPENDING.c.answer).where(SPENDING.c.step == step)).scalar()
        if known is not None:
            return str(known)
        used = {row.name: row.amount for row in c.execute(sa.select(SPENT).where(SPENT.c.scope == scope))}
        after = {name: used.get(name, 0.0) + amount for name, amount in amounts.items()}
        short = next((name for name, amount in after.items() if name in caps and amount > caps[name]), "")
        c.execute(sa.insert(SPENDING).values(step=step, execution=execution, scope=scope, answer=short))
        for name, amount in after.items() if anyway or not short else ():
            if name in used:
                c.execute(sa.update(SPENT).where(SPENT.c.scope == scope, SPENT.c.name == name).values(amount=amount))
            else:
                c.execute(sa.insert(SPENT).values(scope=scope, name=name, amount=amount))
        return short


def spent(store: Store, scope: str) -> dict[str, float]:
    """Return the used amounts of ``scope`` by name."""
    with store.engine.connect() as c:
        return {row.name: row.amount for row in c.execute(sa.select(SPENT).where(SPENT.c.scope == scope))}


def retain(store: Store, before: float) -> int:
    """Remove families that ended before that time, with all their data. Return how many executions."""
    flows = store.flows
    parents = store.flows.alias()
    removed = 0
    roots = (
        sa.select(flows.c.workflow_uuid)
        .outerjoin(parents, parents.c.workflow_uuid == flows.c.parent_workflow_id)
        .where(parents.c.workflow_uuid.is_(None), flows.c.application_name == NAME)
        .where(flows.c.status.notin_(ACTIVE), flows.c.completed_at < int(before * 1000))
        .order_by(flows.c.workflow_uuid)
        .limit(BATCH)
    )
    last = ""
    while True:
        with store.engine.connect() as c:
            found = list(c.execute(roots.where(flows.c.workflow_uuid > last)).scalars())
        if not found:
            return removed
        last = found[-1]
        for root in found:
            family = store.family(root)
            if not any(row.status in ACTIVE or (row.status, row.why) == ("CANCELLED", "paused") for row in family):
                remove(store, [row.workflow_uuid for row in family])
                removed += len(family)


def remove(store: Store, executions: list[str]) -> None:
    """Remove all data of these executions. The sums of a scope are removed with its last entry."""
    for start in range(0, len(executions), BATCH):
        part = executions[start : start + BATCH]
        store.system.delete_workflows(part)
        with store.begin() as c:
            scopes = list(
                c.execute(sa.select(SPENDING.c.scope).where(SPENDING.c.execution.in_(part)).distinct()).scalars()
            )
            c.execute(sa.delete(MARK).where(MARK.c.execution.in_(part)))
            c.execute(sa.delete(SPENDING).where(SPENDING.c.execution.in_(part)))
            left = sa.select(SPENDING.c.scope)
            c.execute(sa.delete(SPENT).where(SPENT.c.scope.in_(scopes), SPENT.c.scope.notin_(left)))
