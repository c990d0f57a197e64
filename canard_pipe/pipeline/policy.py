"""From an exception in a handler to how its failure is recorded: cause as data, back-off, final or tried again."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canard_pipe.engine.attempt import Failure, text_of
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.errors import (
    BudgetError,
    CommandError,
    CommandFailed,
    HandlerExit,
    InputError,
    InputFileError,
    MapFailed,
    PublishError,
    ReplayError,
    SheetError,
)
from canard_pipe.execution.retry import FIRST_SECONDS, LONGEST_SECONDS

_PACKAGE = Path(__file__).parents[1]
# A repeat cannot help: the same would happen again. The built-in ones are mistakes in the pipeline file.
FINAL = (
    InputFileError,
    PublishError,
    BudgetError,
    InputError,
    ReplayError,
    MapFailed,
    HandlerExit,
    AttributeError,
    ImportError,
    NameError,
    TypeError,
)

_TELLING = (  # their messages say what they are
    CommandError, InputFileError, PublishError, BudgetError, ReplayError, SheetError, MapFailed,
)


class FailurePolicy:
    """Describes failures. ``random`` gives numbers from 0 to 1 for the jitter of the back-off.

    What follows from a failed command was decided where its tries are known (canard_pipe/execution/retry.py); for
    other exceptions the task's ``max_failures`` counts, unless a repeat cannot help.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._retry = RetryPolicy(FIRST_SECONDS, LONGEST_SECONDS, random=random)

    def __call__(self, error: BaseException, claim: Claim, _delay: float) -> Failure:
        message = text_of(error)
        if not isinstance(error, _TELLING):
            message = f"{type(error).__name__}: {message}"
        again = error.again if isinstance(error, CommandError) else None
        if again is None:
            rest = self._retry.delay_seconds(claim.failures)
            return Failure(message, rest, fatal=isinstance(error, FINAL), cause=cause_of(error))
        if again.because:
            message += f"\n  not tried again: {again.because}"
        rest = again.tries.rest_seconds(again.earlier, self._random)
        return Failure(message, rest, fatal=again.final, counted=again.counted, cause=cause_of(error))


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
        return {"kind": "disk_full" if _no_space(error.__cause__) else "publish", "target": error.target}
    if isinstance(error, SheetError):
        return {"kind": "sheet"}
    if isinstance(error, MapFailed):
        failed = [{"item": each.key, "state": each.state, "cause": each.cause} for each in error.failures]
        return {"kind": "items", "map": error.name, "items": failed}
    if isinstance(error, BudgetError):
        return {"kind": "budget"}
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    where = (users or frames)[-1:]
    return {
        "kind": "disk_full" if _no_space(error) else "exception",
        "type": type(error).__name__,
        "where": f"{where[0].filename}:{where[0].lineno} in {where[0].name}" if where else None,
    }


def _no_space(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _plain(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, str | int | float | bool)
        or (isinstance(value, list | tuple) and all(isinstance(item, str | int | float | bool) for item in value))
    )
