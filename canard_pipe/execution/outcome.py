"""Bring one command to its outcome: replay it from disk, or run tries until one ends by itself.

The rule of replay: a try whose record says that the command ended by itself *is* the outcome, until the database has
taken it into account. So inside an unfinished step a success is returned again without running anything, and a
failure that the database has recorded (a row in ``jobs``) is followed by a new try. A success is replayed only if
every command before it in the step was: after one that ran anew, its inputs are others.

Where the executor suspends, a command that is at work has a live row in ``jobs``: its task waits for that row again.
A row that is ``ended`` is the outcome, also if the command did not end by itself: its record tells why.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canard_pipe.errors import CommandError, LeaseLost, ReplayError, StorageError, TaskReleased
from canard_pipe.execution import calling, causes, environment, folders, history, jobs
from canard_pipe.execution.command import Command
from canard_pipe.execution.executor import Job
from canard_pipe.execution.failures import failure_of, not_prepared
from canard_pipe.execution.folders import Attempt
from canard_pipe.execution.history import Tried
from canard_pipe.execution.jobs import Known
from canard_pipe.execution.record import Identity, Record
from canard_pipe.execution.resources import Request
from canard_pipe.execution.surroundings import Site, surrounded

if TYPE_CHECKING:
    from canard_pipe.execution.context import CommandContext

log = logging.getLogger(__name__)
TRIES_AFTER_INTERRUPTION = 3


@dataclass(frozen=True, slots=True)
class Brought:
    """The folder of the successful try, whether it was replayed, and in which attempt of the task it was begun."""

    folder: Path
    replayed: bool
    task_attempt: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """A try that is the outcome, and its row in the database, if it has one."""

    attempt: Attempt
    record: Record
    row: Known | None


class CommandRun:
    """One command of one claim. ``place`` is the folder below which its tries lie."""

    def __init__(self, context: CommandContext, command: Command, identity: Identity, place: Path) -> None:
        self._context, self._command, self._identity, self._place = context, command, identity, place
        self._executor = context.executor.of(command)
        self._digest = command.digest(context.database.root)

    def outcome(self, *, replay: bool, since: int) -> Brought:
        """Return what the command has brought. With ``replay`` a try counts that was begun in the attempt ``since``
        of the task or later: earlier ones have used what earlier commands of the step do not give any more.

        Raises what failure_of says for a command that ended by itself but not well, CommandTimeout, OutputError,
        LeaseLost, TaskReleased, TaskSuspended, ReplayError, BudgetError, and StorageError if the launcher died again
        and again.
        """
        tried = folders.records(self._place, self._identity)
        known = self._what_the_database_knows() if tried or self._executor.suspends else {}
        usable = {token: row for token, row in known.items() if replay and row.task_attempt >= since}
        self._wait_for_live(known, usable)
        found = self._replayable(tried, known, usable) if replay else None
        if found is not None:
            before = [each for each in tried if each[0].number < found.attempt.number]
            folder = self._settle(found.attempt, found.record, before, found.row)
            return Brought(folder, True, found.row.task_attempt if found.row else 0)
        request = self._request(tried)
        with self._executor.admit(self._context, self._command, request, self._identity.step) as slot:
            last = tried[-1][0].number if tried else 0
            for _ in range(TRIES_AFTER_INTERRUPTION):
                attempt, job = self._prepared(last, request, history.seconds(self._command, tried, self._executor.most))
                self._context.command_begins(job)
                record = slot.run(job)
                if record.ended_by != "interrupted":
                    return Brought(self._settle(attempt, record, tried, None), False, self._context.attempt)
                self._note(self._job(attempt, record, tried), record, "interrupted", "launcher died", None)
                last = attempt.number
        raise StorageError(
            f"task {self._identity.task}: the launcher died {TRIES_AFTER_INTERRUPTION} times under the command "
            f"{self._command.text()}", operation="running a command", attempts=TRIES_AFTER_INTERRUPTION,
        )

    def _wait_for_live(self, known: Mapping[str, Known], usable: Mapping[str, Known]) -> None:
        """Go back to sleep if this very command is at work; give up on what is at work in its place."""
        for row in known.values():
            if not row.live:
                continue
            if row.token in usable and not row.archived and row.digest == self._digest:
                self._context.suspend([("job", row.token)])
            self._context.ride("revoke_jobs", {"token": row.token})

    def _replayable(self, tried: Tried, known: Mapping[str, Known], usable: Mapping[str, Known]) -> _Ended | None:
        """Return the try that is the outcome, if there is one."""
        ended = [
            (attempt, record) for attempt, record in tried
            if record is not None and (record.by_itself or _is_ended(known.get(record.token)))
        ]
        if not ended:
            return None
        attempt, record = ended[-1]
        row = known.get(record.token)
        if row is not None and (row.archived or row.state not in ("done", jobs.ENDED) or row.token not in usable):
            return None
        if not record.succeeded:
            # Not taken in, so the run died just then. Whoever has changed the command meanwhile wants the new one.
            usable_failure = record.digest == self._digest and attempt == tried[-1][0]
            return _Ended(attempt, record, row) if usable_failure else None
        here = record.outputs_as_recorded(attempt.folder)
        if not here and not (record.job_id is not None and _is_ended(row)):
            log.warning("the outputs in %s are gone or have changed: the command runs again", attempt.folder)
            return None
        if record.digest != self._digest:
            before = " | ".join(" ".join(member.argv) for member in record.members)
            raise ReplayError(
                self._identity.task, self._identity.step or "(outside of any step)",
                expected=f"the command {before} (in {attempt.folder})", actual=self._command.text(),
            )
        return _Ended(attempt, record, row)

    def _what_the_database_knows(self) -> dict[str, Known]:
        return jobs.tries_of(
            self._context.database, self._context.seq, self._identity.step, self._identity.ordinal
        )

    # -- one try ------------------------------------------------------------------------------------------------

    def _prepared(self, last: int, request: Request, seconds: float | None) -> tuple[Attempt, Job]:
        """Make the folder of the next try, with all that it needs before it is started."""
        try:
            attempt = folders.new(self._place, last)
            return attempt, self._written(attempt, request, seconds)
        except OSError as error:
            full = not_prepared(error, self._command, self._place)
            if full is None:
                raise
            raise full from error

    def _written(self, attempt: Attempt, request: Request, seconds: float | None) -> Job:
        command, folder = self._command, attempt.folder
        variables = environment.of_command(
            self._context.environ, command.env, cpus=command.cpus, memory_bytes=request.memory_bytes or None
        )
        token = secrets.token_hex(16)
        site = Site(
            self._context.environ, self._context.database.root, self._context.work, folder, self._context.places(),
            f"canard-{token[:16]}",
        )
        made = surrounded(command, variables, site)
        step = f"step {self._identity.step}" if self._identity.step else "outside of any step"
        note = f"task {self._identity.task!a}, {step!a}, command {self._identity.ordinal}, try {attempt.number}"
        folders.write_script(folder, command, made.members, made.variables, note)
        if command.call is not None:
            (folder / calling.ARGUMENTS).write_text(command.call.arguments, encoding="utf-8")
        return Job(
            token, self._digest, self._identity, command, attempt.number, folder, made.variables, seconds, request,
            made.members, made.enders,
        )

    def _settle(self, attempt: Attempt, record: Record, before: Tried, row: Known | None) -> Path:
        """Return the folder of a successful try; note the outcome and raise the error of another.

        ``before``: the tries before this one. ``row``: what the database knows of it.
        """
        job = self._job(attempt, record, before)
        new = row is None or row.state == jobs.ENDED
        if new:
            _remove_if_used(attempt.folder / "tmp")
            if record.left_over:
                log.warning(
                    "task %s: the command left %d processes behind, which had to end: %s",
                    self._identity.task, record.left_over, self._command.text(),
                )
        if record.ended_by in ("lost", "stop"):
            self._note(job, record, jobs.INTERRUPTED, record.ended_by, row)
            if record.ended_by == "stop":
                raise TaskReleased(self._identity.task)
            raise LeaseLost(self._identity.task, self._context.attempt, operation="its command")
        problems = self._problems(attempt, record, new=new) if record.succeeded else []
        error: CommandError | None = failure_of(record, self._command, attempt.folder, problems)
        if new:
            self._note(job, record, "failed" if error else "done", error.cause if error else None, row)
        if error is not None:
            error.again = history.again(
                self._command, [*before, (attempt, record)], error.cause, self._context.tries,
                self._executor.most,
            )
            raise error
        return attempt.folder

    def _problems(self, attempt: Attempt, record: Record, *, new: bool) -> list[str]:
        """Return what is wrong with what a try has made; the check of one's own is asked while it is ``new``."""
        problems = self._context.output_problems(attempt.folder, self._command.outputs, new=new)
        if new and record.job_id is not None and not problems:  # waited for in vain, and another try may do the same
            problems = record.differences(attempt.folder)
        if new and not problems and causes.ended_on_a_full_disk(attempt.folder):
            problems = ["the disk was full when the command ended: what it has written may be cut off"]
        if self._command.check is not None and new and not problems:
            self._context.check()
            said = self._command.check(attempt.folder)
            problems = [] if said is None else [str(said)]
        return problems

    def _job(self, attempt: Attempt, record: Record, before: Tried) -> Job:
        return Job(
            record.token, record.digest, self._identity, self._command, attempt.number, attempt.folder, {},
            history.seconds(self._command, before, self._executor.most), self._request(before),
        )

    def _request(self, tried: Tried) -> Request:
        return history.request(self._command, tried, self._executor.most)

    def _note(self, job: Job, record: Record, state: str, cause: str | None, row: Known | None) -> None:
        """Let the end of this try join the next transaction: as a row of its own, or in that which it has."""
        facts = jobs.facts_of(record)
        self._context.command_ended(job, state, cause, facts)
        if row is None:
            made = jobs.row_of(self._context, job, self._executor.name, state, cause=cause, **facts)
            self._context.ride("record_jobs", made)
        else:
            self._context.ride("settle_jobs", {"token": job.token, "state": state, "cause": cause, **facts})


def _is_ended(row: Known | None) -> bool:
    return row is not None and row.state == jobs.ENDED


def _remove_if_used(folder: Path) -> None:
    """Remove the folder for temporary files with what a tool left there; an empty one stays, since that is slow."""
    try:
        used = any(folder.iterdir())
    except OSError:
        return
    if used:
        shutil.rmtree(folder, ignore_errors=True)
