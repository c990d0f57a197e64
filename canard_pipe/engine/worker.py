"""The worker: claim, run the handler, record the outcome, again; with one slot or many."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from canard_pipe.engine import arguments, claiming, mapping
from canard_pipe.engine.attempt import Describe, Handler, Outcome, by_policy, describe, run
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.engine.tasks import Tasks
from canard_pipe.errors import CanardError, FailureRecordingError, InputError, LeaseLost, OwnerUnreachable

log = logging.getLogger(__name__)


class Worker:
    """N slots that take tasks from a database until told to stop. One worker per run.

    ``away`` is asked, when the owner of the file cannot be reached, whether to go on; without it that ends the work.
    ``succeed``: whether a slot may claim its next task with the end of the last; not where ``on_result`` takes long.
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
        succeed: bool = True,
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
        self._succeed, self._may_wish = succeed, False
        self._wish: claiming.Request | None = None  # what a slot may claim by itself
        self._succeeded = 0
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
        self._succeeded, self._may_wish = 0, self._succeed and max_tasks == float("inf")
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
        return taken + self._succeeded

    def _start(self, claims: list[Claim], submit: Callable[[Claim], None]) -> None:
        left = list(claims)
        try:
            while left:
                submit(left.pop(0))
        except BaseException:
            _release(left)  # claimed, but nobody has begun with them
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
            self._abandoned = False  # before, since other slots may abandon theirs meanwhile
            try:
                self.database.disown()
            except BaseException:
                self._abandoned = True
                raise
        if not self.database.can_renew(or_raise=OwnerUnreachable if self._away is not None else ()):
            return []
        self._sweep()
        limit = int(min(most, self.slots))
        claims = self._claim_at_most(limit)
        if len(claims) == limit or not self._item_ended:
            return claims
        self._item_ended = False  # perhaps the last one: its parent need not wait for the next poll
        try:
            return claims + self._claim_at_most(limit - len(claims)) if self.database.wake() else claims
        except BaseException:
            _release(claims)
            raise

    def _claim_at_most(self, limit: int) -> list[Claim]:
        ids = self._ids()
        request = self.database.request(
            limit, queue=self._queue, worker=self._worker, lease_seconds=self._lease_seconds,
            names=frozenset(self._names()), ids=None if ids is None else frozenset(ids), ahead=True,
        )
        self._wish = replace(request, limit=1)
        return self.database.grab_for(request)

    def _next_wish(self) -> claiming.Request | None:
        """Return what a slot may claim while it ends its task, instead of coming free; None if the worker has to look
        round first, or counts the tasks."""
        if not self._may_wish or self.stopping or self._broken is not None or self._item_ended:
            return None
        must_look = self.database.clock.monotonic() >= self._next_sweep or self.database.renewals_fail
        return None if must_look else self._wish

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
        """Run an attempt, then those that succeed it."""
        following: Claim | None = claim
        while following is not None:
            following = self._attempt(following)

    def _attempt(self, claim: Claim) -> Claim | None:
        claim.stopping = self._stopping.is_set
        try:
            self._run(claim)
            successor: Claim | None = claim.successor
            if successor is not None and successor.seconds_left() < successor.lease_seconds / 2:
                successor.heartbeat()  # nobody renewed it while somebody was told of the end
        except BaseException as error:
            _release([claim.successor] if claim.successor is not None else [])  # nobody begins with it
            if isinstance(error, LeaseLost):
                return None
            raise
        if successor is not None:
            with self._changed:
                self._succeeded += 1
        return successor

    def _run(self, claim: Claim) -> None:
        try:
            outcome = run(
                claim, self.handlers[claim.name], self._failure_delay, describe=self._describe, wish=self._next_wish
            )
        except (OwnerUnreachable, FailureRecordingError) as error:
            if self._away is None or not isinstance(getattr(error, "storage_error", error), OwnerUnreachable):
                raise
            outcome = Outcome(claim.id, claim.attempt, "lost", None, error=error)
        if outcome.status == "lost" and self._away is not None:
            # Given back when the owner answers, for whom the lease may go on: commands end some time before it does.
            claim.abandoned = self._abandoned = True
        if mapping.MARK in claim.id:
            self._item_ended = True
        if self._on_result is not None:
            self._on_result(outcome)  # after the outcome is durable; its error is the caller's (G21)
        elif outcome.status == "failed":
            log.warning("task %s failed: %s", claim.id, outcome.error, exc_info=outcome.error)  # G22
        elif outcome.status == "lost":
            log.warning("task %s: attempt %d lost its lease", claim.id, claim.attempt)


def _release(claims: Collection[Claim]) -> None:
    for claim in claims:
        with suppress(CanardError):
            claim.release()


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
