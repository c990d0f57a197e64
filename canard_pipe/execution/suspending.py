"""Run commands on this machine while their tasks sleep, as they do under a scheduler: a test mode of ``run``.

So every pipeline can be tried with its handlers torn down at each command. A command is ended with its run: what is
found live in ``jobs`` at the start of another run is over, and runs again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, LeaseLost, TaskReleased
from canard_pipe.execution import jobs
from canard_pipe.execution.command import Command
from canard_pipe.execution.executor import Job, Leaseholder, RunningCommand
from canard_pipe.execution.jobs import CANCELLED, ENDED, INTERRUPTED, RUNNING, WAITING
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.record import Record
from canard_pipe.execution.resources import Most, Request

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
_ENDS = {"itself": ENDED, "timeout": ENDED, "memory": ENDED, "lost": CANCELLED}


class _Sleeper:
    """Holds a command in place of the claim that was given up: there is no lease that could run out."""

    lease_seconds = 3600.0

    def __init__(self, task_id: str, seq: int, attempt: int) -> None:
        self.id, self.seq, self.attempt = task_id, seq, attempt
        self.lost = threading.Event()
        self.database = self

    def renew(self, _claims: Sequence[Any]) -> list[Any]:
        """Renew nothing."""
        return []

    def check(self) -> None:
        """Raise LeaseLost if the command is not wanted any more."""
        if self.lost.is_set():
            raise LeaseLost(self.id, self.attempt, operation="its command")

    def suspend(self, waits: Any, *, extra: Any = ()) -> NoReturn:
        """Never called: this is the sleep."""
        raise NotImplementedError


class _Slot:
    def __init__(self, executor: SuspendingLocal, claim: Leaseholder) -> None:
        self._executor, self._claim = executor, claim

    def run(self, job: Job) -> Record:
        self._executor._record(self._claim, job)


class SuspendingLocal:
    """An executor that suspends around ``local``, which outlives it. A context manager.

    ``changed`` is called, from any thread, when a task may have become ready.
    """

    name = "local"
    suspends = True

    def __init__(self, local: LocalExecutor, database: Database, changed: Callable[[], None]) -> None:
        self._local, self._database, self._changed = local, database, changed
        self._lock = threading.Lock()
        self._handed_over: dict[str, tuple[Job, _Sleeper]] = {}  # until the command has ended
        self._started: dict[str, threading.Thread] = {}
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="jobs", daemon=True)

    def __enter__(self) -> SuspendingLocal:
        left = jobs.live_jobs(self._database, self.name)  # by a run that has died, and its commands with it
        jobs.move(self._database, [_end(job.token, INTERRUPTED) for job in left])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._wake.set()
        self._thread.join()
        self._look_once()  # a cancel may have been the last that happened
        self._local.stop_all()
        for thread in list(self._started.values()):
            thread.join()

    def of(self, command: Command) -> SuspendingLocal:  # noqa: ARG002 - everything
        """See :class:`Executor`."""
        return self

    @contextmanager
    def admit(self, claim: Leaseholder, command: Command, request: Request, step: str) -> Iterator[_Slot]:  # noqa: ARG002
        """See :class:`Executor`; the budget is taken when the task sleeps."""
        self._local.budget.check(request)
        claim.check()
        yield _Slot(self, claim)

    @property
    def most(self) -> Most:
        """See :class:`Executor`."""
        return self._local.most

    def running(self) -> list[RunningCommand]:
        """Return what waits and runs now."""
        return self._local.running()

    def stop_jobs(self) -> None:
        """See Executor: there is no scheduler."""

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """See :class:`Executor`."""
        self._local.stop_all(grace_seconds)

    def _record(self, claim: Leaseholder, job: Job) -> NoReturn:
        with self._lock:  # before the row is there: whoever sees the row finds it
            self._handed_over[job.token] = (job, _Sleeper(claim.id, claim.seq, claim.attempt))
        row = jobs.row_of(claim, job, self.name, WAITING, live=True)
        try:
            claim.suspend([("job", job.token)], extra=[("record_jobs", [row])])
        finally:
            self._wake.set()

    # -- the thread that starts what was recorded and ends what is not wanted ------------------------------------

    def _watch(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            self._look_once()
            self._wake.wait(LOOK_SECONDS)

    def _look_once(self) -> None:
        try:
            self._look()
        except CanardError as error:
            log.warning("jobs: %s", error)

    def _look(self) -> None:
        unwanted = []
        for row in jobs.live_jobs(self._database, self.name):
            with self._lock:
                job, sleeper = self._handed_over.get(row.token, (None, None))
                begun = row.token in self._started
            if row.to_cancel or row.unwanted:
                unwanted.append(row.token)
                if sleeper is not None:
                    sleeper.lost.set()
            elif job is not None and sleeper is not None and not begun and not self._over.is_set():
                thread = threading.Thread(target=self._run, args=(job, sleeper), name=f"job {row.token[:8]}")
                self._started[row.token] = thread
                thread.start()
        jobs.move(self._database, [_end(token, CANCELLED) for token in unwanted])

    def _run(self, job: Job, sleeper: _Sleeper) -> None:
        ended = INTERRUPTED
        try:
            with self._local.admit(sleeper, job.command, job.request, job.identity.step) as slot:
                now_us = self._database.clock.now_us()
                row = {"token": job.token, "state": RUNNING, "live": True, "started_us": now_us}
                jobs.move(self._database, [row])
                ended = _ENDS.get(slot.run(job).ended_by, INTERRUPTED)
        except LeaseLost:
            ended = CANCELLED
        except TaskReleased:
            pass
        except CanardError as error:
            log.warning("jobs: %s", error)
        jobs.move(self._database, [_end(job.token, ended)])
        with self._lock:
            del self._handed_over[job.token], self._started[job.token]
        self._changed()


def _end(token: str, state: str) -> dict[str, Any]:
    return {"token": token, "state": state, "live": False, "to_cancel": False}
