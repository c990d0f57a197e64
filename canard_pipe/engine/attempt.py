"""One attempt at a task: run its handler and record how it ended."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.claiming import Request
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.errors import (
    CanardError,
    FailureRecordingError,
    LeaseLost,
    MapFailed,
    RestoreError,
    StorageError,
    TaskReleased,
    TaskSuspended,
)

log = logging.getLogger(__name__)
Handler = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended (F17).

    ``status`` is completed, failed, suspended, released or lost; ``state`` is the task's new state as far as it is
    known (None after ``lost``); ``error`` is the live exception of a failure (S42).
    """

    id: str
    attempt: int
    status: str
    state: str | None
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """How a handler's exception is to be recorded; see :meth:`Claim.fail`."""

    message: str
    delay_seconds: float = 0.0
    fatal: bool = False
    counted: bool = True
    cause: dict[str, Any] | None = None


Describe = Callable[[BaseException, Claim, float], Failure]


def text_of(error: BaseException) -> str:
    """Return the message of an exception, its type's name if it has none or cannot say it."""
    try:
        return str(error) or type(error).__name__
    except Exception as worse:
        return f"{type(error).__name__} (its message raises {type(worse).__name__})"


def describe(error: BaseException, claim: Claim, delay_seconds: float) -> Failure:  # noqa: ARG001 - a policy's shape
    """Say how to record ``error``: its message whole, its type as the cause, after the worker's fixed delay."""
    message = text_of(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else None
    cause = {"kind": "exception", "type": type(error).__name__, "where": where}
    # The items of a map have failed for good: to ask for them again brings the same.
    return Failure(message, delay_seconds, fatal=isinstance(error, MapFailed), cause=cause)


def by_policy(describe: Describe, retry: RetryPolicy | Mapping[str, RetryPolicy]) -> Describe:
    """Return ``describe`` with delay and finality by ``retry``: one for all, or one for each name."""

    def decided(error: BaseException, claim: Claim, delay_seconds: float) -> Failure:
        failure = describe(error, claim, delay_seconds)
        policy = retry.get(claim.name) if isinstance(retry, Mapping) else retry
        if policy is None:
            return failure
        fatal = failure.fatal or policy.is_fatal(error)
        return replace(failure, delay_seconds=policy.delay_seconds(claim.failures), fatal=fatal)

    return decided


def run(
    claim: Claim,
    handler: Handler,
    failure_delay: float = 0.0,
    *,
    describe: Describe = describe,
    wish: Callable[[], Request | None] = lambda: None,
) -> Outcome:
    """Run one attempt and record how it ended (F17). ``wish`` says what to claim together with a good end.

    A handler's exception counts one failure. A lost lease does not, and is not recorded against the newer attempt
    (S30). A stored value that cannot be read fails the task without counting a failure (G18, S31). Other storage
    errors propagate (G10), as do KeyboardInterrupt and SystemExit, which hand the claim back (G23).
    """
    try:
        result = handler(claim.input, claim)
        if not claim.ended:
            claim.wish = wish  # not for a handler that completes by itself and then goes on
            claim.complete(result)
            return _ended(claim, result=result)
        return _ended(claim)  # the handler has ended it by itself
    except TaskSuspended:
        return _ended(claim)
    except TaskReleased:
        return _hand_back(claim)
    except LeaseLost as error:
        return Outcome(claim.id, claim.attempt, "lost", None, error=error)
    except RestoreError as error:
        return _quarantine(claim, error)
    except StorageError:
        raise
    except Exception as error:
        if claim.ended:
            log.warning("task %s: its handler failed after it had ended the attempt", claim.id, exc_info=error)
            return _ended(claim, error=error)
        return _record(claim, error, describe(error, claim, failure_delay))
    except BaseException:  # an interrupt passes and counts nothing, neither now nor when the lease runs out
        if not claim.ended:
            with suppress(CanardError):
                claim.release()
        raise


def _ended(claim: Claim, *, result: Any = None, error: BaseException | None = None) -> Outcome:
    if claim.ending is None:  # a TaskSuspended that no suspension of this claim has raised
        return Outcome(claim.id, claim.attempt, "suspended", None)
    return Outcome(claim.id, claim.attempt, claim.ending.outcome, claim.ending.state, result, error)


def _hand_back(claim: Claim) -> Outcome:
    if claim.ended:
        return _ended(claim)
    try:
        claim.release()
    except LeaseLost as error:
        return Outcome(claim.id, claim.attempt, "lost", None, error=error)
    return _ended(claim)


def _quarantine(claim: Claim, error: RestoreError) -> Outcome:
    if claim.ended:
        return _ended(claim, error=error)
    try:
        claim.quarantine(str(error))
    except LeaseLost:
        return Outcome(claim.id, claim.attempt, "lost", None, error=error)
    return _ended(claim, error=error)


def _record(claim: Claim, error: Exception, failure: Failure) -> Outcome:
    try:
        claim.fail(failure.message, failure.delay_seconds, fatal=failure.fatal, counted=failure.counted,
                   cause=failure.cause)
    except LeaseLost:
        return Outcome(claim.id, claim.attempt, "lost", None, error=error)
    except StorageError as storage_error:
        raise FailureRecordingError(claim.id, storage_error) from error
    return _ended(claim, error=error)
