"""The executor ``slurm``: records commands and lets their tasks sleep; one thread submits and watches the jobs.

Everything it knows stands in ``jobs`` and in the folders of the tries, so a run that was killed at any moment is
followed by one that goes on from there. Compute nodes never see the database.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from canard_pipe.engine.clock import Clock
from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, TaskReleased
from canard_pipe.execution import jobs
from canard_pipe.execution.command import Command
from canard_pipe.execution.executor import Executor, Job, Leaseholder, RunningCommand
from canard_pipe.execution.jobs import RUNNING, WAITING, LiveJob
from canard_pipe.execution.record import Record
from canard_pipe.execution.resources import Most, Request
from canard_pipe.execution.slurm import Client, Limits, script
from canard_pipe.execution.slurm.settings import SlurmSettings
from canard_pipe.execution.slurm.submitting import Move, Submitter
from canard_pipe.execution.slurm.watching import Watcher

log = logging.getLogger(__name__)
TICK_SECONDS = 1.0
GROWTH = 1.5
CANCEL_SECONDS = 60.0  # at the end of a run, for jobs that were cancelled


class Rounds:
    """Submits, watches and cancels, a round at a time. Belongs to one thread."""

    def __init__(
        self, database: Database, client: Client, settings: SlurmSettings, *, note: Callable[[str], None], clock: Clock
    ) -> None:
        self._database, self._settings, self._clock = database, settings, clock
        self._watcher = Watcher(client, settings, database.root, note=note, monotonic=clock.monotonic)
        self._submitter = Submitter(
            client, settings, database.root, record=self._record, note=note, now_us=clock.now_us,
            monotonic=clock.monotonic,
        )
        self._interval = settings.interval_seconds
        self._next_question = float("-inf")
        self._changed = False

    def round(self, *, submitting: bool, ask: bool = False) -> list[LiveJob]:
        """Do what is due; return the jobs as they are then. ``ask``: ask Slurm now, whatever the interval.

        Given up first, then submitted: what a task has replaced is revoked before its successor exists.
        """
        self._changed = False
        self._record(self._watcher.give_up(jobs.live_jobs(self._database, SlurmExecutor.name)))
        while submitting and self._submitter.submit(jobs.live_jobs(self._database, SlurmExecutor.name)):
            continue
        rows = jobs.live_jobs(self._database, SlurmExecutor.name)
        now = self._clock.monotonic()
        due = bool(rows) and (ask or now >= self._next_question)
        if due:
            self._submitter.look_up(rows)
            rows = jobs.live_jobs(self._database, SlurmExecutor.name)
            self._watcher.ask(rows)
        self._record(self._watcher.judge(rows, asked=due), rows)
        self._record(self._watcher.cancel(rows, asked=due), rows)
        if due:
            quiet = not self._changed
            self._interval = (
                min(self._interval * GROWTH, self._settings.longest_interval_seconds) if quiet
                else self._settings.interval_seconds
            )
            self._next_question = now + self._interval
        elif self._changed:
            self._next_question = min(self._next_question, now + self._settings.interval_seconds)
        return jobs.live_jobs(self._database, SlurmExecutor.name) if self._changed else rows

    @property
    def changed(self) -> bool:
        """Whether the last round has found something new."""
        return self._changed

    def _record(self, moves: Sequence[Move], before: Sequence[LiveJob] = ()) -> None:
        jobs.move(self._database, moves)
        states = {row.token: row.state for row in before}  # another reason for waiting is nothing new
        self._changed = self._changed or any(move["state"] != states.get(move["token"]) for move in moves)


class _Slot:
    def __init__(self, executor: SlurmExecutor, claim: Leaseholder) -> None:
        self._executor, self._claim = executor, claim

    def run(self, job: Job) -> Record:
        self._executor._record(self._claim, job)


class SlurmExecutor:
    """A context manager. ``local`` runs the commands that ask for ``executor="local"``; it outlives this one.

    ``environ`` is the run's environment; ``changed`` is called when tasks may have become ready, ``note`` with lines
    for people; both from the executor's thread.
    """

    name = "slurm"
    suspends = True

    def __init__(
        self, database: Database, client: Client, settings: SlurmSettings, *, local: Executor,
        environ: Mapping[str, str], changed: Callable[[], None], note: Callable[[str], None], clock: Clock,
    ) -> None:
        self._database, self._settings, self._local, self._environ = database, settings, local, environ
        self._changed, self._note, self._clock = changed, note, clock
        self._client, self._limits = client, Limits()
        self._rounds = Rounds(database, client, settings, note=note, clock=clock)
        self._rows: list[LiveJob] = []
        self._stopping = self._cancelling = False
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="slurm", daemon=True)

    def __enter__(self) -> SlurmExecutor:
        self._limits = self._client.limits(self._settings.site.partition)
        self._rows = jobs.live_jobs(self._database, self.name)
        found = [row for row in self._rows if row.live]
        if found:
            self._note(f"going on with {_jobs(len(found))} of an earlier run")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._wake.set()
        self._thread.join()
        if self._cancelling:
            cancel_all(self._database)
        finish_cancelling(self._rounds, note=self._note, clock=self._clock)

    def of(self, command: Command) -> Executor:
        """See :class:`Executor`."""
        chosen: Executor = self
        if command.executor == "local":
            chosen = self._local.of(command)
        return chosen

    @property
    def most(self) -> Most:
        """See :class:`Executor`: what the partition allows."""
        return Most(self._limits.memory_bytes, self._limits.time_seconds)

    @contextmanager
    def admit(self, claim: Leaseholder, command: Command, request: Request, step: str) -> Iterator[_Slot]:  # noqa: ARG002
        """See :class:`Executor`; what there is and who is first is Slurm's business."""
        if self._stopping:
            raise TaskReleased(claim.id)
        claim.check()
        yield _Slot(self, claim)

    def running(self) -> list[RunningCommand]:
        """Return what waits and runs now, here and in Slurm."""
        return [*self._local.running(), *(_shown(row, self._database) for row in self._rows if row.live)]

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """Submit nothing more, and leave what is in Slurm."""
        first, self._stopping = not self._stopping, True
        self._local.stop_all(grace_seconds)
        left = sum(1 for row in self._rows if row.live)
        if first and left:
            more = "; once more within 5 s cancels them" if self._settings.cancel_jobs else ""
            self._note(f"{_jobs(left)} stay in Slurm: the same line again goes on with them{more}")

    def stop_jobs(self) -> None:
        """See :class:`Executor`; ``cancel_jobs`` of the settings asks for it."""
        self._local.stop_jobs()
        self._cancelling = self._settings.cancel_jobs
        self._wake.set()

    def _record(self, claim: Leaseholder, job: Job) -> NoReturn:
        script.write(job, self._environ, self._settings.site, self._settings.grace_seconds)
        place = job.folder.parent
        name = script.job_name("-".join(place.parts[-3:-1]), job.identity.step, job.token)
        row = jobs.row_of(claim, job, self.name, WAITING, live=True, job_name=name)
        try:
            claim.suspend([("job", job.token)], extra=[("record_jobs", [row])])
        finally:
            self._wake.set()

    def _work(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            try:
                self._rows = self._rounds.round(submitting=not self._stopping)
                if self._rounds.changed:
                    self._changed()
            except CanardError as error:
                log.warning("slurm: %s", error)
            except Exception:  # the jobs of all samples hang on this thread
                log.exception("slurm: a round failed")
            self._wake.wait(TICK_SECONDS if self._rows else None)


def cancel_all(database: Database) -> None:
    """Give up on all live jobs of Slurm; their tasks make new ones when they are run again."""
    rows = jobs.live_jobs(database, SlurmExecutor.name)
    database.write("revoke_jobs", [{"token": row.token} for row in rows if row.live])


def finish_cancelling(rounds: Rounds, *, note: Callable[[str], None], clock: Clock) -> None:
    """See the jobs out that are not wanted any more, for a minute at most; say which ones are left."""
    end = clock.monotonic() + CANCEL_SECONDS
    rows: list[LiveJob] = []
    while True:
        try:
            rows = [row for row in rounds.round(submitting=False, ask=True) if row.to_cancel]
        except CanardError as error:
            log.warning("slurm: %s", error)
        if not rows or clock.monotonic() >= end:
            break
        clock.sleep(TICK_SECONDS)
    if rows:
        names = ", ".join(f"{row.job_id or row.name}" for row in rows)
        note(f"not known to be gone from Slurm: {names}; the next run cancels them again")


def _shown(row: LiveJob, database: Database) -> RunningCommand:
    running = row.state == RUNNING
    since_us = row.started_us if running and row.started_us is not None else row.recorded_us
    return RunningCommand(
        row.task_id or "", row.step, row.command, "running" if running else "queued", row.cpus, since_us,
        folder=database.root / row.folder, job_id=row.job_id,
    )


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
