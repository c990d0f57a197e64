"""What is asked of an owner and answered, as JSON: writes, grants and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from canard_pipe import errors
from canard_pipe.engine.grants import Grant, Saved
from canard_pipe.engine.writer import Write

PROTOCOL = 1  # another number is another language

# The arguments by which an error is made again. What is not listed arrives as a StorageError with its text.
_FIELDS: dict[str, tuple[str, ...]] = {
    "ConflictError": ("operation", "attempts", "message_based"),
    "LeaseLost": ("task_id", "attempt", "operation"),
    "ProtocolError": ("operation", "attempts"),
    "SpawnConflict": ("task_id", "differs_in"),
    "StateHeld": ("path", "pid", "host", "since"),
    "StorageError": ("operation", "attempts"),
}


def write_to(write: Write) -> list[Any]:
    """Return a write as JSON can hold it."""
    return [write.transition, write.row, write.task_id, write.attempt, write.operation, write.extra]


def write_from(told: Sequence[Any]) -> Write:
    """Return the write of :func:`write_to`."""
    transition, row, task_id, attempt, operation, extra = told
    return Write(transition, row, task_id, attempt, operation, tuple((name, rows) for name, rows in extra))


def grant_from(told: dict[str, Any]) -> Grant:
    """Return the grant of which ``dataclasses.asdict`` made this."""
    return Grant(**told | {"saved": tuple(Saved(**saved) for saved in told["saved"])})


def grant_to(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON can hold it."""
    return asdict(grant)


def error_to(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON can hold it."""
    kind = type(error).__name__
    if kind not in _FIELDS and kind != "InputError":
        kind = "StorageError"
    fields = {name: getattr(error, name, None) for name in _FIELDS.get(kind, ())}
    if isinstance(fields.get("path"), Path):
        fields["path"] = str(fields["path"])
    return {"type": kind, "message": str(error), **fields}


def error_from(told: dict[str, Any], operation: str) -> errors.CanardError:
    """Return the error that the owner has met, to be raised here."""
    kind, text = told["type"], told["message"]
    if kind == "LeaseLost":
        return errors.LeaseLost(told["task_id"], told["attempt"], operation=told["operation"])
    if kind == "SpawnConflict":
        return errors.SpawnConflict(told["task_id"], told["differs_in"])
    if kind == "StateHeld":
        return errors.StateHeld(Path(told["path"]), pid=told["pid"], host=told["host"], since=told["since"])
    if kind == "InputError":
        return errors.InputError(text)
    operation, attempts = told.get("operation") or operation, told.get("attempts") or 1
    if kind == "ConflictError":
        return errors.ConflictError(
            text, operation=operation, attempts=attempts, message_based=bool(told["message_based"])
        )
    if kind == "ProtocolError":
        return errors.ProtocolError(text, operation=operation, attempts=attempts)
    return errors.StorageError(text, operation=operation, attempts=attempts)
