"""The worker: claim, run the handler, record the outcome, again; with one slot or many."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from canard_pipe.engine import arguments, mapping
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.engine.tasks import Tasks
from canard_pipe.errors import (
    CanardError,
    FailureRecordingError,
    InputError,
    LeaseLost,
    MapFailed,
    OwnerUnreachable,
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
) -> Outcome:
    """Run one attempt and record how it ended (F17).

    A handler's exception counts one failure. A lost lease does not, and is not recorded against the newer attempt
    (S30). A stored value that cannot be read fails the task without counting a failure (G18, S31). Other storage
    errors propagate (G10), as do KeyboardInterrupt and SystemExit, which hand the claim back (G23).
    """
    try:
        result = handler(claim.input, claim)
        if not claim.ended:
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


class Worker:
    """N slots that take tasks from a database until told to stop. One worker per run.

    ``away`` is asked, when the owner of the file cannot be reached, whether to go on; without it that ends the work.
    A failed task comes again after ``failure_delay`` seconds, or as ``retry`` says: one policy, or one for each name.
    """

    def __init__(
        self,
        database: Tasks,
        handlers: Mapping[str, Handler],
        *,
        slots: int = 1,
        queue: str = "default",
        worker: str = "worker",
        lease_seconds: float = 30.0,
        poll_seconds: float = 0.1,
        reap_limit: int = 64,
        failure_delay: float = 0.0,
        on_result: Callable[[Outcome], None] | None = None,
        names: Callable[[], frozenset[str]] | None = None,
        ids: Callable[[], Collection[str] | None] = lambda: None,
        finished: Callable[[], bool] = lambda: False,
        describe: Describe = describe,
        retry: RetryPolicy | Mapping[str, RetryPolicy] | None = None,
        away: Callable[[OwnerUnreachable], bool] | None = None,
    ) -> None:
        if not handlers or not all(callable(handler) for handler in handlers.values()):
            raise InputError("handlers must map task names to functions")
        self.database, self.handlers = database, dict(handlers)
        self.slots = arguments.whole("slots", slots, 1, 10_000)
        self.poll_seconds = arguments.seconds("poll_seconds", poll_seconds)
        self._queue, self._worker = arguments.text("queue", queue, 128), arguments.text("worker", worker, 128)
        self._lease_seconds = arguments.seconds("lease_seconds", lease_seconds)
        self._reap_limit = arguments.whole("reap_limit", reap_limit, 0, 2**31 - 1)
        self._failure_delay = arguments.seconds("failure_delay", failure_delay, zero=True)
        self._on_result = on_result
        self._describe = describe if retry is None else by_policy(describe, retry)
        self._names = names or (lambda: frozenset(self.handlers))
        self._ids, self._finished = ids, finished
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._busy = 0
        self._next_sweep = float("-inf")
        self._item_ended = False
        self._away, self._abandoned = away, False
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """Claim nothing more; handlers give their claims back at their next step or command."""
        self._stopping.set()
        self.nudge()

    def nudge(self) -> None:
        """Look for work now rather than at the next poll."""
        with self._changed:
            self._changed.notify_all()

    @property
    def broken(self) -> bool:
        """Whether a slot met an error that ends the work; :meth:`work` raises it when the other slots are done."""
        return self._broken is not None

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping.is_set()

    def work(self, *, max_tasks: float = float("inf"), idle_timeout: float = float("inf")) -> int:
        """Take tasks until ``max_tasks`` attempts were claimed, nothing was eligible for ``idle_timeout`` seconds,
        or :meth:`stop`; return how many were claimed (F18, S32). ``idle_timeout`` 0 drains what is eligible now.

        Ends too when nothing was eligible and ``finished()`` says so. Unknown names are left alone (S8). Lost leases
        and unreadable rows do not stop the worker (S31).
        """
        arguments.seconds("idle_timeout", idle_timeout, zero=True, endless=True)
        if max_tasks != float("inf"):
            arguments.whole("max_tasks", max_tasks, 0, 2**31 - 1)
        taken = 0
        idle_since = self.database.clock.monotonic()
        with self.database.pulse(), self._executor() as submit:
            while taken < max_tasks and not self.stopping:
                free = self._wait_for_slot()
                if self._broken is not None or self.stopping:
                    break
                was_busy = free < self.slots  # then a handler may make work after this claim has found none
                claims = self._claim_if_reached(min(free, max_tasks - taken))
                if claims is None:
                    continue
                taken += len(claims)
                self._start(claims, submit)
                if claims:
                    idle_since = self.database.clock.monotonic()
                    continue
                left = idle_timeout - (self.database.clock.monotonic() - idle_since)
                if not self._idle(left, was_busy):
                    break
                if was_busy:
                    idle_since = self.database.clock.monotonic()
            if self._broken is not None:
                self.stop()  # the other handlers give their claims back
        if self._broken is not None:
            raise self._broken
        return taken

    def _start(self, claims: list[Claim], submit: Callable[[Claim], None]) -> None:
        left = list(claims)
        try:
            while left:
                left[0].stopping = self._stopping.is_set
                submit(left.pop(0))
        except BaseException:
            for claim in left:  # claimed, but nobody has begun with them
                with suppress(CanardError):
                    claim.release()
            raise

    def _claim_if_reached(self, most: float) -> list[Claim] | None:
        """Claim; None if the owner was away, which can have cost a claim that was granted."""
        try:
            return self._claim(most)
        except OwnerUnreachable as error:
            self._abandoned = True
            if self._away is None or not self._away(error):
                raise
            return None

    def _claim(self, most: float) -> list[Claim]:
        if self._abandoned:
            self.database.disown()
            self._abandoned = False
        self._sweep()
        limit = int(min(most, self.slots))
        claims = self._claim_at_most(limit)
        if len(claims) < limit and self._item_ended:  # perhaps the last one: its parent need not wait for the next poll
            self._item_ended = False
            if self.database.wake():
                claims += self._claim_at_most(limit - len(claims))
        return claims

    def _claim_at_most(self, limit: int) -> list[Claim]:
        return self.database.claim_many(
            limit, queue=self._queue, worker=self._worker,
            lease_seconds=self._lease_seconds, names=self._names(), ids=self._ids(), reap_limit=0,
            ahead=True,
        )

    def _sweep(self) -> None:
        """Wake suspended tasks and fail exhausted ones, once per poll interval: claims come far more often."""
        now = self.database.clock.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + self.poll_seconds
            self.database.sweep(self._queue, self._reap_limit)

    def _wait_for_slot(self) -> int:
        with self._changed:
            while self._busy >= self.slots and self._broken is None and not self.stopping:
                self._changed.wait()
            return self.slots - self._busy

    def _idle(self, left: float, was_busy: bool) -> bool:
        """Wait for a slot to come free or the next poll; False when there is nothing left to wait for."""
        if not was_busy and (left <= 0 or self._finished()):
            return False
        with self._changed:
            if not was_busy or self._busy:
                self._changed.wait(self.poll_seconds if was_busy else min(self.poll_seconds, left))
            return True

    @contextmanager
    def _executor(self) -> Iterator[Callable[[Claim], None]]:
        if self.slots == 1:
            yield self._attempt_here  # in the calling thread: interrupts reach the handler (G23)
            return
        with ThreadPoolExecutor(self.slots, thread_name_prefix="slot") as pool:

            def submit(claim: Claim) -> None:
                with self._changed:
                    self._busy += 1
                pool.submit(self._attempt_in_thread, claim)

            try:
                yield submit
            except BaseException:
                self.stop()
                raise

    def _attempt_in_thread(self, claim: Claim) -> None:
        try:
            self._attempt_here(claim)
        except BaseException as error:
            self._broken = self._broken or error
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _attempt_here(self, claim: Claim) -> None:
        try:
            outcome = run(claim, self.handlers[claim.name], self._failure_delay, describe=self._describe)
        except (OwnerUnreachable, FailureRecordingError) as error:
            if self._away is None or not isinstance(getattr(error, "storage_error", error), OwnerUnreachable):
                raise
            claim.abandoned = self._abandoned = True  # given back when the owner answers again
            outcome = Outcome(claim.id, claim.attempt, "lost", None, error=error)
        if mapping.MARK in claim.id:
            self._item_ended = True
        if self._on_result is not None:
            self._on_result(outcome)  # after the outcome is durable; its error is the caller's (G21)
        elif outcome.status == "failed":
            log.warning("task %s failed: %s", claim.id, outcome.error, exc_info=outcome.error)  # G22
        elif outcome.status == "lost":
            log.warning("task %s: attempt %d lost its lease", claim.id, claim.attempt)


def work(
    database: Tasks,
    handlers: Mapping[str, Handler],
    *,
    max_tasks: float = float("inf"),
    idle_timeout: float = float("inf"),
    **options: Any,
) -> int:
    """Work on ``database`` with ``handlers`` (name -> function of input and ctx); see :class:`Worker` (F18)."""
    return Worker(database, handlers, **options).work(max_tasks=max_tasks, idle_timeout=idle_timeout)
