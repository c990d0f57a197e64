"""Bring one command to its outcome: replay it from disk, or run tries until one ends by itself.

The rule of replay: a try whose record says that the command ended by itself *is* the outcome, until the database has
taken it into account. So inside an unfinished step a success is returned again without running anything, and a
failure that the database has recorded (a row in ``jobs``) is followed by a new try. A success is replayed only if
every command before it in the step was: after one that ran anew, its inputs are others.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canard_pipe.errors import CommandError, LeaseLost, OutputError, ReplayError, StorageError, TaskReleased
from canard_pipe.execution import calling, environment, folders, outputs
from canard_pipe.execution.command import Command
from canard_pipe.execution.executor import Job, Slot
from canard_pipe.execution.failures import failure_of
from canard_pipe.execution.folders import Attempt
from canard_pipe.execution.record import Identity, Record
from canard_pipe.execution.resources import Request

if TYPE_CHECKING:
    from canard_pipe.execution.context import CommandContext

log = logging.getLogger(__name__)
TRIES_AFTER_INTERRUPTION = 3


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database knows of a try."""

    state: str
    archived: bool


class CommandRun:
    """One command of one claim. ``place`` is the folder below which its tries lie."""

    def __init__(self, context: CommandContext, command: Command, identity: Identity, place: Path) -> None:
        self._context, self._command, self._identity, self._place = context, command, identity, place
        self._digest = command.digest(context.database.root)

    def outcome(self, *, replay: bool) -> tuple[Path, bool]:
        """Return the folder of the successful try, and whether it was replayed.

        Raises what failure_of says for a command that ended by itself but not well, CommandTimeout, OutputError,
        LeaseLost, TaskReleased, ReplayError, BudgetError, and StorageError if the launcher died again and again.
        """
        tried = folders.records(self._place, self._identity)
        found = self._replayable(tried) if tried and replay else None
        if found is not None:
            attempt, record, known = found
            return self._settle(attempt, record, self._request(tried), recorded=known), True
        request = self._request(tried)
        seconds = self._command.seconds(sum(1 for _, record in tried if record and record.ended_by == "timeout"))
        with self._context.executor.admit(self._context, self._command, request, self._identity.step) as slot:
            last = tried[-1][0].number if tried else 0
            for _ in range(TRIES_AFTER_INTERRUPTION):
                attempt = folders.new(self._place, last)
                record = self._try(slot, attempt, request, seconds)
                if record.ended_by != "interrupted":
                    return self._settle(attempt, record, request, recorded=False), False
                self._note(attempt, record, request, "interrupted", "launcher died")
                last = attempt.number
        raise StorageError(
            f"task {self._identity.task}: the launcher died {TRIES_AFTER_INTERRUPTION} times under the command "
            f"{self._command.text()}", operation="running a command", attempts=TRIES_AFTER_INTERRUPTION,
        )

    def _request(self, tried: list[tuple[Attempt, Record | None]]) -> Request:
        return self._command.request(sum(1 for _, record in tried if record and record.oom))

    def _replayable(self, tried: list[tuple[Attempt, Record | None]]) -> tuple[Attempt, Record, bool] | None:
        """Return the try that is the outcome, if there is one, and whether the database has recorded it."""
        ended = [(attempt, record) for attempt, record in tried if record is not None and record.by_itself]
        if not ended:
            return None
        attempt, record = ended[-1]
        known = self._what_the_database_knows().get(record.token)
        if known is not None and (known.archived or known.state != "done"):
            return None
        if not record.succeeded:
            # Unrecorded, so the run died just then. Whoever has changed the command meanwhile wants the new one.
            usable = record.digest == self._digest and attempt == tried[-1][0]
            return (attempt, record, False) if usable else None
        if not record.outputs_as_recorded(attempt.folder):
            log.warning("the outputs in %s are gone or have changed: the command runs again", attempt.folder)
            return None
        if record.digest != self._digest:
            before = " | ".join(" ".join(member.argv) for member in record.members)
            raise ReplayError(
                self._identity.task, self._identity.step or "(outside of any step)",
                expected=f"the command {before} (in {attempt.folder})", actual=self._command.text(),
            )
        return attempt, record, known is not None

    def _what_the_database_knows(self) -> dict[str, _Known]:
        rows = self._context.database.query(
            "tries_of_command",
            task_seq=self._context.seq, step=self._identity.step, ordinal=self._identity.ordinal,
        )
        return {token: _Known(state, archived) for token, state, archived in rows}

    # -- one try ------------------------------------------------------------------------------------------------

    def _try(self, slot: Slot, attempt: Attempt, request: Request, seconds: float | None) -> Record:
        command, folder = self._command, attempt.folder
        variables = environment.of_command(
            self._context.environ, command.env, cpus=command.cpus, memory_bytes=request.memory_bytes or None
        )
        step = f"step {self._identity.step}" if self._identity.step else "outside of any step"
        note = f"task {self._identity.task!a}, {step!a}, command {self._identity.ordinal}, try {attempt.number}"
        folders.write_script(folder, command, variables, note)
        if command.call is not None:
            (folder / calling.ARGUMENTS).write_text(command.call.arguments, encoding="utf-8")
        token = secrets.token_hex(16)
        record = slot.run(
            Job(token, self._digest, self._identity, command, attempt.number, folder, variables, seconds)
        )
        _remove_if_used(folder / "tmp")
        if record.left_over:
            log.warning(
                "task %s: the command left %d processes behind, which had to end: %s",
                self._identity.task, record.left_over, command.text(),
            )
        return record

    def _settle(self, attempt: Attempt, record: Record, request: Request, *, recorded: bool) -> Path:
        """Return the folder of a successful try; note the outcome and raise the error of another."""
        if record.ended_by in ("lost", "stop"):
            self._note(attempt, record, request, "interrupted", record.ended_by)
            if record.ended_by == "stop":
                raise TaskReleased(self._identity.task)
            raise LeaseLost(self._identity.task, self._context.attempt, operation="its command")
        error: CommandError | None = failure_of(record, self._command, attempt.folder)
        if error is None:
            problems = outputs.problems(attempt.folder, self._command.outputs)
            error = OutputError(problems, folder=attempt.folder) if problems else None
        if not recorded:
            self._note(attempt, record, request, "failed" if error else "done", error.cause if error else None)
        if error is not None:
            raise error
        return attempt.folder

    def _note(self, attempt: Attempt, record: Record, request: Request, state: str, cause: str | None) -> None:
        """Let the row of this try join the next transaction."""
        root, folder = self._context.database.root, attempt.folder
        row: dict[str, Any] = {
            "task_seq": self._context.seq, "task_attempt": self._context.attempt,
            "step": self._identity.step, "ordinal": self._identity.ordinal, "attempt": attempt.number,
            "executor": self._context.executor.name, "token": record.token, "digest": record.digest,
            "folder": str(folder.relative_to(root) if folder.is_relative_to(root) else folder),
            "command": self._command.text().encode(errors="replace").decode(),
            "state": state, "cause": cause, "exit_code": record.exit_code, "signal": record.signal,
            "cpus": request.cpus, "memory_bytes": request.memory_bytes or None,
            "time_seconds": self._command.seconds(), "peak_memory_bytes": record.peak_memory_bytes,
            "cpu_seconds": record.cpu_seconds, "host": record.host,
            "started_us": record.started_us, "ended_us": record.ended_us,
        }
        self._context.ride("record_jobs", row)


def _remove_if_used(folder: Path) -> None:
    """Remove the folder for temporary files with what a tool left there; an empty one stays, since that is slow."""
    try:
        used = any(folder.iterdir())
    except OSError:
        return
    if used:
        shutil.rmtree(folder, ignore_errors=True)
