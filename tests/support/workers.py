"""Workers: processes that run the collected tests, forked from the one that has collected them, with ``--workers N``.

Collecting all tests takes 10 s of processor time. When four processes of pytest-xdist each collected for themselves,
that and the one that directed them took 97 s.

A worker takes the next file when it has run one, so that what the tests of a module share is rarely made twice. When no
file is left, it takes half of what is left of another's.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import traceback
import warnings
import zlib
from collections import deque
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.capture import FDCapture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from _pytest.terminal import TerminalReporter

ENDS_SECONDS = 150
"""The time for a worker to end what its test has started, after the run was interrupted."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N forked processes")
    parser.addoption("--one-more-after", type=int, metavar="PID", help="one more worker once that process has ended")


def mix(files: deque[deque[int]]) -> None:
    """Bring files of different folders next to each other, always in the same order.

    Neighbours are alike: if tests that wait for each other's seconds ran at once, no processor would have work.
    """
    mixed = sorted(files, key=lambda numbers: zlib.crc32(b"%d" % numbers[0]))
    files.clear()
    files.extend(mixed)


class Worker:
    """A process that runs the tests whose numbers it is sent. After the last one it is sent None, and ends."""

    def __init__(self, session: pytest.Session, name: str, others: Iterable[Worker]) -> None:
        self.name = name
        self.part: deque[int] = deque()
        """What it will run, if no other worker takes it."""
        self.given: deque[int] = deque()
        """The test that it runs and the next one, of which it must know what to keep for it."""
        self.open = True
        self.link, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()  # a terminal's Ctrl-C reaches the run alone, which interrupts each worker once
            for link in (self.link, *(other.link for other in others)):
                link.close()
            work(session, name, theirs)
        theirs.close()
        self.process = os.pidfd_open(self.pid)

    def send(self, number: int | None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which is noticed elsewhere
            self.link.send(number)

    def ended(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end(self) -> str:
        """Wait for its end, and return how it ended."""
        if not self.ended(ENDS_SECONDS):
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.link.close()
        os.close(self.process)
        return f"was killed by signal {-status}" if status < 0 else f"ended with exit code {status}"


class Workers:
    """The plug-in that has workers run the tests and reports what they found as if it had run them itself."""

    def __init__(self, session: pytest.Session, count: int, before_one_more: int | None) -> None:
        self._session = session
        self._count = count
        self._before_one_more: int | None = None
        """The process whose end makes room for one more."""
        if before_one_more is not None:
            try:
                self._before_one_more = os.pidfd_open(before_one_more)
            except ProcessLookupError:  # its parent has reaped it
                self._count += 1
        self._files = deque(
            deque(group)
            for _, group in groupby(range(len(session.items)), key=lambda number: session.items[number].path)
        )
        mix(self._files)
        self._workers: list[Worker] = []
        self._started = 0

    def run(self) -> None:
        """Run all tests. Raises what pytest's own loop raises."""
        session = self._session
        try:
            for _ in range(min(self._count, len(session.items))):
                self._start()
            while self._workers:
                ends = [self._before_one_more] if self._before_one_more is not None else []
                ready = wait([*ends, *(one for worker in self._workers for one in (worker.link, worker.process))])
                if self._before_one_more in ready:
                    os.close(self._before_one_more)
                    self._before_one_more = None
                    self._start()
                for worker in [worker for worker in self._workers if {worker.link, worker.process} & {*ready}]:
                    self._attend(worker)
        finally:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)
                worker.send(None)
            for worker in self._workers:
                worker.end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _start(self) -> None:
        worker = Worker(self._session, f"w{self._started}", self._workers)
        self._started += 1
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: Worker) -> None:
        while worker.open and len(worker.given) < 2:
            number = self._next(worker)
            if number is None:
                worker.open = False
            else:
                worker.given.append(number)
            worker.send(number)

    def _next(self, worker: Worker) -> int | None:
        if self._session.shouldfail or self._session.shouldstop:
            return None
        if not worker.part and self._files:
            worker.part = self._files.popleft()
        if not worker.part:
            most = max(self._workers, key=lambda other: len(other.part)).part
            worker.part.extendleft([most.pop() for _ in range((len(most) + 1) // 2)])
        return worker.part.popleft() if worker.part else None

    def _attend(self, worker: Worker) -> None:
        """Report what the worker has found, and give it more to do or note that it has ended."""
        ended = worker.ended(0)
        try:
            while worker.link.poll():
                self._report(worker, worker.link.recv())
        except (EOFError, ConnectionResetError):
            ended = True
        if not ended:
            self._give(worker)
            return
        self._workers.remove(worker)
        how = worker.end()
        if worker.given:
            self._report_death(worker.given.popleft(), how)
        if left := worker.given + worker.part:
            self._files.appendleft(left)
            self._start()

    def _report(self, worker: Worker, message: Any) -> None:
        if isinstance(message, str):
            raise RuntimeError(f"worker {worker.name} failed:\n{message}")
        reports, told = message
        hook, item = self._session.config.hook, self._session.items[worker.given.popleft()]
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=item.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        for category, text, filename, line, rest in told:
            warning = warnings.WarningMessage(f"{category}: {text}", Warning, filename, line)
            hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": warning, **rest})
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _report_death(self, number: int, how: str) -> None:
        item = self._session.items[number]
        message = f"the process that ran this test {how}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
        item.config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item.config.hook.pytest_runtest_logreport(report=report)
        item.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class Findings:
    """The plug-in that keeps what a worker has to send of one test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[Any] = []
        self._told: list[tuple[str, str, str, int, dict[str, Any]]] = []

    def take(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the reports and warnings since the last time."""
        taken = self._reports, self._told
        self._reports, self._told = [], []
        return taken

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        rest = {"when": when, "nodeid": nodeid, "location": location}
        one = warning_message
        self._told.append((one.category.__name__, str(one.message), one.filename, one.lineno, rest))


class Silent:
    """In a worker, the reporter that reports nothing: others ask it where to write that a test takes too long."""

    def __init__(self, reporter: TerminalReporter) -> None:
        self._tw = reporter._tw


def work(session: pytest.Session, name: str, link: Connection) -> NoReturn:
    """Run tests in this forked process until there are no more, and end it."""
    code = 1
    try:
        try:
            findings = stand_apart(session.config, name)
            number = link.recv()
            while number is not None:
                following = link.recv()
                next_item = None if following is None else session.items[following]
                session.config.hook.pytest_runtest_protocol(item=session.items[number], nextitem=next_item)
                link.send(findings.take())
                number = following
            code = 0
        except (KeyboardInterrupt, EOFError, ConnectionError):
            # The run was interrupted.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            session._setupstate.teardown_exact(None)
        except BaseException:
            link.send(traceback.format_exc())
        atexit._run_exitfuncs()
    finally:
        os._exit(code)


def stand_apart(config: pytest.Config, name: str) -> Findings:
    """Give this process what it cannot share with the one that it was forked from. Returns the plug-in for findings."""
    atexit._clear()
    os.environ["PYTEST_WORKER"] = name
    plugins = config.pluginmanager
    if reporter := plugins.getplugin("terminalreporter"):
        plugins.unregister(reporter)
        plugins.register(Silent(reporter), "terminalreporter")
    if (capture := plugins.getplugin("capturemanager")) and (capturing := capture._global_capturing):
        for stream in (capturing.out, capturing.err):
            if isinstance(stream, FDCapture):
                # Other modules may hold this file, so it stays the same and becomes one of this process.
                with TemporaryFile() as own:
                    os.dup2(own.fileno(), stream.tmpfile.fileno(), inheritable=False)
    folders = config._tmp_path_factory
    folders._basetemp = folders.getbasetemp() / name
    folders._basetemp.mkdir(mode=0o700)
    findings = Findings(config)
    plugins.register(findings)
    findings.take()  # warnings from before
    return findings


def run(session: pytest.Session, prepare: Callable[[], object]) -> bool | None:
    """Run the tests in workers, if there shall be some, after ``prepare()`` has started what they share."""
    option = session.config.option
    failed = session.testsfailed and not option.continue_on_collection_errors
    if not option.workers or option.collectonly or option.usepdb or failed:
        return None
    if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
        reporter.showfspath = False
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    assert threading.active_count() == 1, "threads do not survive a fork"
    prepare()
    sys.stdout.flush()
    sys.stderr.flush()
    Workers(session, option.workers, option.one_more_after).run()
    return True
