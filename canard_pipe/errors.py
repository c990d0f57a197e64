"""Every error that canard-pipe raises on purpose.

::

    CanardError
    ├── InputError (ValueError)          a caller's argument is wrong; nothing happened
    │   ├── ValueEncodeError             a value cannot be stored; no SQL was sent
    │   ├── PipelineFileError            the pipeline file is wrong
    │   ├── ParameterError               the parameters are wrong: all problems at once
    │   ├── SettingsError                settings files or variables are wrong: all problems at once
    │   └── SheetError                   the sheet is wrong: all problems at once
    ├── StorageError                     the database did not do what was asked
    │   ├── ConflictError                another transaction won; the statement may be repeated
    │   ├── OwnerUnreachable             a message to the owner of the file had no answer
    │   ├── LeaseLost                    the claim is no longer current
    │   ├── ProtocolError                more than one row changed where one was meant
    │   ├── RestoreError                 a stored value cannot be read back
    │   └── FailureRecordingError        a handler failed and recording that failed too
    ├── SpawnConflict                    the id is taken by a task that differs
    ├── ResultUnavailable                the task is unknown or has not completed
    ├── ReplayError                      the handler asks for other steps or commands than it saved
    ├── SchemaError                      the file's schema is not one this version can use
    ├── StateHeld                        another process owns the state
    ├── ExtensionError                   a DuckDB extension cannot be loaded
    ├── ConnectionClosed                 the database handle is closed
    ├── MaintenanceError                 the maintenance thread cannot do what was asked
    ├── CloseError (ExceptionGroup)      closing failed; every clean-up step was tried
    ├── CommandError                     a supervised command did not succeed
    │   ├── CommandFailed                exit code or signal
    │   ├── CommandTimeout               ran longer than its time
    │   ├── CommandNotStarted            not found (127), not executable (126), folder missing
    │   └── OutputError                  ended well, but an output is missing, empty or damaged
    ├── BudgetError                      a step asks for more than the machine has
    ├── InputFileError                   an input file of a sample is missing, truncated or changed
    ├── PublishError                     a result cannot be published
    ├── MapFailed                        items of a map have failed or were cancelled
    └── HandlerExit                      a function of the pipeline tried to end the program

Control flow, not errors (``BaseException``, so that ``except Exception`` in a handler lets them pass, G24):
``TaskSuspended`` and ``TaskReleased``. ``SampleSkipped`` is an ordinary exception that a handler raises.

Ids such as G24 are those of docs/parity.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SHOWN_KEYS, _LONGEST_CAUSE = 10, 300


class CanardError(Exception):
    """Root of all errors of this package (E1)."""


class InputError(CanardError, ValueError):
    """An argument is wrong; nothing was changed (E2, G16)."""


class ValueEncodeError(InputError):
    """A value cannot be stored. ``where`` is its place in the value, such as ``$.lanes[2]`` (E3, G17)."""

    def __init__(self, message: str, where: str = "$") -> None:
        super().__init__(f"{message} (at {where})")
        self.where = where


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong in a file: where, what, which rule, and the way out.

    ``line`` and ``column`` count from 1; ``column`` is the column's name where it has one.
    """

    file: str
    line: int | None
    column: str | None
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        column = "" if self.column is None else f" column {self.column}:"
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}:{column} {self.message}{hint}"


class _ProblemsError(InputError):
    """``problems`` holds every problem found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class PipelineFileError(_ProblemsError):
    """The pipeline file cannot be used; ``problems`` says why."""


class SheetError(_ProblemsError):
    """The sheet cannot be used; ``problems`` lists everything that is wrong with it."""


class ParameterError(_ProblemsError):
    """The parameters given for the pipeline cannot be used; ``problems`` lists everything that is wrong."""


class SettingsError(_ProblemsError):
    """Settings cannot be used; ``problems`` lists everything that is wrong in files and variables."""


class StorageError(CanardError):
    """The database did not do what was asked; no failure of the task is counted (E4, G10).

    ``attempts`` and ``elapsed_seconds`` tell how often and how long it was tried, ``__cause__`` what it follows from.
    """

    def __init__(self, message: str, *, operation: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.operation, self.attempts = operation, attempts
        self.elapsed_seconds = 0.0

    @property
    def error_type(self) -> str | None:
        """The type of the error that this one follows from in the end, such as DuckDB's ``IOException``."""
        found: BaseException | None = self
        while found is not None and found.__cause__ is not None:
            found = found.__cause__
        return None if found is self else type(found).__name__


class ConflictError(StorageError):
    """Another transaction won. The aborted statement may be repeated, handler code not (E5, G7).

    ``message_based`` tells that the error was known only by its text, as over Quack.
    """

    def __init__(self, message: str, *, operation: str, attempts: int = 1, message_based: bool = False) -> None:
        super().__init__(message, operation=operation, attempts=attempts)
        self.message_based = message_based


class OwnerUnreachable(StorageError):
    """The owner of the file could not be asked, or its answer did not come. Never repeated by itself (G8, S25).

    ``sent`` is False where the question did certainly not reach it; else it may have done what was asked. ``closing``
    tells that it said so itself: it gives the state back.
    """

    def __init__(self, message: str, *, operation: str, sent: bool = True, closing: bool = False) -> None:
        super().__init__(message, operation=operation)
        self.sent, self.closing = sent, closing


class LeaseLost(StorageError):
    """The claim is no longer current: expired, cancelled or taken over. Never retried (E6, G9)."""

    def __init__(self, task_id: str, attempt: int, *, operation: str) -> None:
        super().__init__(
            f"attempt {attempt} of task {task_id} no longer holds its lease, so {operation} was refused",
            operation=operation,
        )
        self.task_id, self.attempt = task_id, attempt


class ProtocolError(StorageError):
    """A statement meant for one row changed several (E7)."""


class RestoreError(StorageError):
    """A stored value cannot be read back; no failure is counted, no step runs again (E8, G18)."""

    def __init__(self, message: str, *, task_id: str, operation: str) -> None:
        super().__init__(f"task {task_id}: {message}", operation=operation)
        self.task_id = task_id


class FailureRecordingError(StorageError):
    """A handler failed (``__cause__``) and the failure could not be recorded (``storage_error``) (E9, S29)."""

    def __init__(self, task_id: str, storage_error: BaseException) -> None:
        super().__init__(f"the failure of task {task_id} could not be recorded: {storage_error}", operation="fail")
        self.task_id, self.storage_error = task_id, storage_error


class SpawnConflict(CanardError):
    """The id belongs to a task that differs in queue, name, input, priority or max_failures (E10, S22)."""

    def __init__(self, task_id: str, differs_in: Sequence[str]) -> None:
        super().__init__(f"task {task_id} exists and differs in {', '.join(differs_in)}")
        self.task_id, self.differs_in = task_id, tuple(differs_in)


class ResultUnavailable(CanardError):
    """The task is unknown (``state`` is None) or has not completed (E11, S37)."""

    def __init__(self, task_id: str, state: str | None) -> None:
        super().__init__(f"task {task_id} is unknown" if state is None else f"task {task_id} is {state}, not completed")
        self.task_id, self.state = task_id, state


class ReplayError(CanardError):
    """The handler asks for something else than what it saved under this name (E12)."""

    def __init__(
        self, task_id: str, name: str, *, expected: str, actual: str,
        way_out: str = "give it another name, or retry the sample from this step", message: str | None = None,
    ) -> None:
        super().__init__(
            message or f"task {task_id}: {name!r} stands for {expected}, but is asked for as {actual}; {way_out}"
        )
        self.task_id, self.name, self.expected, self.actual = task_id, name, expected, actual


class SchemaError(CanardError):
    """The file's schema cannot be used; the file was not changed. ``version`` is the one found (E13, S41)."""

    def __init__(self, message: str, version: int | None) -> None:
        super().__init__(message)
        self.version = version


class StateHeld(CanardError):
    """Another living process owns the state. ``pid`` and ``host`` name it where they are known (G26)."""

    def __init__(self, path: Path, *, pid: int | None, host: str | None, since: str | None = None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        where = "" if host is None else f" on {host}"
        when = "" if since is None else f" since {since}"
        super().__init__(f"the state {path} is held by {who}{where}{when}")
        self.path, self.pid, self.host, self.since = path, pid, host, since


class ExtensionError(CanardError):
    """A DuckDB extension cannot be loaded (E14)."""


class ConnectionClosed(CanardError):
    """The database handle is closed (E15)."""


class MaintenanceError(CanardError):
    """The maintenance thread cannot do what was asked (E16)."""


class CloseError(ExceptionGroup, CanardError):
    """Closing failed; every clean-up step was tried and ``exceptions`` lists what went wrong (E17)."""


class CommandError(CanardError):
    """A supervised command did not succeed (E18).

    ``cause`` is one word for policy and reports, those of canard_pipe/execution/causes.py; ``facts`` is the rest as
    data. ``folder`` is the folder of the try: command.sh, logs, outputs. ``again`` is what follows from how often the
    command is to be tried, once that was looked up (canard_pipe/execution/retry.py). ``task_id`` is whose command it
    is.
    """

    cause = "command"

    def __init__(
        self, message: str, *, folder: Path, cause: str | None = None, facts: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.folder, self.facts = folder, dict(facts or {})
        self.cause = cause or self.cause
        self.again: Any = None
        self.task_id: str | None = None


class CommandFailed(CommandError):
    """A member of the command ended with another ``exit_code`` than 0, or by a ``signal`` (its name); or it was ended
    since its memory ran out."""

    cause = "exit"

    def __init__(
        self,
        message: str,
        *,
        folder: Path,
        exit_code: int | None,
        signal: str | None,
        cause: str | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, folder=folder, cause=cause or ("signal" if signal else "exit"), facts=facts)
        self.exit_code, self.signal = exit_code, signal


class CommandTimeout(CommandError):
    """The command ran longer than its time and was ended with its whole tree; it has no exit code (S38)."""

    cause = "timeout"


class CommandNotStarted(CommandError):
    """The program is not there (cause ``not_found``), cannot be executed (``not_executable``), or there is no space
    for its folder (``disk_full``)."""


class OutputError(CommandError):
    """The command ended with 0, but a declared output is missing, empty or damaged. ``problems`` names each."""

    cause = "output"

    def __init__(
        self, problems: Sequence[str], *, folder: Path, cause: str | None = None,
        facts: dict[str, Any] | None = None, details: str = "",
    ) -> None:
        super().__init__("; ".join(problems) + details, folder=folder, cause=cause,
                         facts=dict(facts or {}) | {"problems": list(problems)})
        self.problems = tuple(problems)


class BudgetError(CanardError):
    """A step asks for more cpus or memory than the whole budget; it could never start."""


class InputFileError(CanardError):
    """An input file of a sample is missing, truncated, damaged or has changed. ``path`` names it."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


class PublishError(CanardError):
    """A result cannot be published. ``target`` is the place below the results folder."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """How one item of a map ended: ``state`` is failed or cancelled, ``cause`` its last failure as data."""

    key: str
    task_id: str
    state: str
    error: str | None
    cause: dict[str, Any]


class MapFailed(CanardError):
    """Items of the map ``name`` have not completed: ``failures`` has each of them, in the order of the items.

    ``results`` are those of the others, by key. A repeat does not help: the items have ended for good. A retry of the
    task lets the failed ones run again and keeps the rest.
    """

    def __init__(self, name: str, failures: Sequence[ItemFailure], results: Mapping[str, Any], total: int) -> None:
        counts = f"{len(failures)} of {total} item{'s' * (total != 1)} of {name!r}"
        states = " or ".join(state for state in ("failed", "cancelled") if any(f.state == state for f in failures))
        keys = [failure.key for failure in failures]
        some = ", ".join(keys) if len(keys) <= _SHOWN_KEYS else f"{', '.join(keys[:_SHOWN_KEYS])}, …"
        lines = [f"  {failure.key}: {_said(failure)}" for failure in failures]
        super().__init__("\n".join([f"{counts} {states}: {some}", *lines]))
        self.name, self.failures, self.results = name, tuple(failures), dict(results)


def _said(failure: ItemFailure) -> str:
    lines = (failure.error or "").strip().splitlines()
    said = lines[0] if lines and failure.state == "failed" else failure.state
    return said if len(said) <= _LONGEST_CAUSE else f"{said[:_LONGEST_CAUSE]}…"


class HandlerExit(CanardError):
    """A function of the pipeline tried to end the program, for instance by ``sys.exit()``."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__} in a function of the pipeline: {error}")


class SampleSkipped(CanardError):
    """Raised by a handler: leave this sample out, for ``reason``. Neither success nor failure."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TaskSuspended(BaseException):
    """The task waits and has given up its claim; unwinds the handler (N4, G24)."""

    def __init__(self, task_id: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of task {task_id} is suspended")
        self.task_id, self.attempt = task_id, attempt


class TaskReleased(BaseException):
    """The run is stopping: the claim is handed back, nothing is counted; unwinds the handler."""
