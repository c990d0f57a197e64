"""From an exception in a handler to how its failure is recorded: cause as data, back-off, final or tried again."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.engine.worker import Failure, text_of
from canard_pipe.errors import (
    BudgetError,
    CommandError,
    CommandFailed,
    CommandNotStarted,
    HandlerExit,
    InputError,
    InputFileError,
    PublishError,
    ReplayError,
    SheetError,
)

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 60.0
_PACKAGE = Path(__file__).parents[1]
# A repeat cannot help: the same would happen again. The built-in ones are mistakes in the pipeline file.
FINAL = (
    CommandNotStarted,
    InputFileError,
    PublishError,
    BudgetError,
    InputError,
    ReplayError,
    HandlerExit,
    AttributeError,
    ImportError,
    NameError,
    TypeError,
)
SHELL_NOT_EXECUTABLE, SHELL_NOT_FOUND = 126, 127  # how a shell says of a program what CommandNotStarted says


class FailurePolicy:
    """Describes failures. ``random`` gives numbers from 0 to 1 for the jitter of the back-off."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._retry = RetryPolicy(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, random=random)

    def __call__(self, error: BaseException, claim: Claim, _delay: float) -> Failure:
        message = text_of(error)
        if not isinstance(error, CommandError | InputFileError | PublishError | BudgetError | ReplayError | SheetError):
            message = f"{type(error).__name__}: {message}"
        delay_seconds = self._retry.delay_seconds(claim.failures)
        return Failure(message, delay_seconds, fatal=_is_final(error), cause=cause_of(error))


def _is_final(error: BaseException) -> bool:
    if isinstance(error, CommandFailed):
        return error.exit_code in (SHELL_NOT_EXECUTABLE, SHELL_NOT_FOUND)
    return isinstance(error, FINAL)


def cause_of(error: BaseException) -> dict[str, Any]:
    """Return the facts of a failure as a JSON object; ``kind`` is the one word that policies and reports use."""
    if isinstance(error, CommandError):
        cause: dict[str, Any] = {"kind": error.cause, "folder": str(error.folder)}
        if isinstance(error, CommandFailed):
            cause |= {"exit_code": error.exit_code, "signal": error.signal}
        return cause | {key: value for key, value in error.facts.items() if _plain(value)}
    if isinstance(error, InputFileError):
        return {"kind": "bad_input", "path": str(error.path)}
    if isinstance(error, PublishError):
        return {"kind": "publish", "target": error.target}
    if isinstance(error, SheetError):
        return {"kind": "sheet"}
    if isinstance(error, BudgetError):
        return {"kind": "budget"}
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    where = (users or frames)[-1:]
    return {
        "kind": "exception",
        "type": type(error).__name__,
        "where": f"{where[0].filename}:{where[0].lineno} in {where[0].name}" if where else None,
    }


def _plain(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, str | int | float | bool)
        or (isinstance(value, list | tuple) and all(isinstance(item, str | int | float | bool) for item in value))
    )
