"""One writer per process: what waits to be written is gathered into one transaction.

A caller of :meth:`Writer.write` returns when its write is durable, or raises. Whoever finds nobody committing
leads: it commits everything that waits (group commit), then hands the lead to one who waits. So 32 threads that
save a step at once cost about one transaction, and no thread of its own is needed.

A transition is fenced: its statement changes exactly one row for each write, or the claim is no longer current.
If a gathered transaction cannot be committed as a whole, it is rolled back and each write is tried by itself, so
that one stale claim, or one row that the database refuses, fails alone. Only when the commit itself fails, so that
nobody knows what became of it, all of them are told so and nothing is repeated (G8, S25).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from canard_pipe.engine.clock import Clock
from canard_pipe.engine.clock_guard import ClockGuard, Gap
from canard_pipe.engine.store import Store
from canard_pipe.errors import ConflictError, LeaseLost, OwnerUnreachable, ProtocolError, StorageError

log = logging.getLogger(__name__)
Row = dict[str, Any]
# What changes neither which tasks can be claimed nor their order.
_IN_PLACE = frozenset(["save_checkpoints", "renew_leases", "complete_tasks"])
RIDE_SECONDS = 0.25  # how long rows that only inform may wait, so that many are written by one statement
GATHER_SECONDS = 0.001  # how long a leader waits at most for those that have just been served: a part of a transaction
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.01, 0.5


@dataclass(slots=True, eq=False)
class Write:
    """One fenced transition of one claim: the row for ``transition``, and further statements with their rows.

    ``done`` tells that it has been dealt with; then ``error`` is None if it is durable, and ``at_us`` is the
    database's time in its transaction. ``wish`` says what its holder would claim next in the same transaction, and
    ``granted`` is what it got, if anything was at hand.
    """

    transition: str
    row: Row
    task_id: str
    attempt: int
    operation: str
    extra: tuple[tuple[str, Sequence[Row]], ...] = ()
    wish: Any = None
    granted: Any = None
    done: bool = False
    at_us: int | None = None
    error: BaseException | None = None
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def decided(self) -> bool:
        """Whether it is known what became of it, or that nobody knows."""
        return self.at_us is not None or self.error is not None


class _CountDiffers(Exception):
    def __init__(self, transition: str, expected: int, found: int) -> None:
        super().__init__(transition)
        self.expected, self.found = expected, found


class Writer:
    """Gathers writes and commits them. Conflicts are retried ``conflict_retries`` times, never handler code (G7).

    ``guard`` is looked at before each transaction; when there is a gap, the deadlines in the database are moved
    first, then ``moved`` is called to move those in memory. ``grant`` is called within a transaction with the writes
    that have a ``wish``; it sets their ``granted``, which counts once the transaction has committed.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        conflict_retries: int = 8,
        jitter: Callable[[], float] | None = None,
        guard: ClockGuard | None = None,
        moved: Callable[[Gap], None] = lambda _gap: None,
        grant: Callable[[Sequence[Write]], None] = lambda _writes: None,
    ) -> None:
        self._store, self._clock = store, clock
        self._conflict_retries = conflict_retries
        self._jitter = jitter or random.Random().random  # its own stream: the caller's is untouched (G20)
        self._guard, self._moved, self._grant = guard or ClockGuard(clock), moved, grant
        self._mutex = threading.Lock()  # for the three below; held for moments only
        self._waiting: list[Write] = []
        self._leader: Write | None = None  # the first write of the call that commits, or has been told to
        self._riders: list[tuple[str, Row]] = []
        self._riding_since = 0.0
        self._expected = 0  # how many writes are likely to come soon, since as many have just been served
        self._gathered = threading.Event()
        self._turn = threading.Lock()  # whoever has it may begin a transaction
        self._committing = False  # whether the present transaction has got as far as its commit
        self.order = 0  # grows whenever a transaction may have changed what can be claimed, or in which order

    def write(self, write: Write) -> None:
        """Commit ``write``, together with what else waits. Raises LeaseLost if its claim is not current."""
        self.write_all([write])
        if write.error is not None:
            raise write.error

    def write_all(self, writes: Sequence[Write]) -> None:
        """Commit many writes together; what went wrong with each is in its ``error``, nothing is raised for it."""
        if not writes:
            return
        first = writes[0]  # they stay together: they wait together and are taken together
        try:
            with self._mutex:
                self._waiting.extend(writes)
                if len(self._waiting) >= self._expected:
                    self._gathered.set()
                if self._leader is None:
                    self._leader = first
            while not first.done:
                if self._leader is first:
                    self._lead(first)
                else:
                    first.settled.wait()
                    first.settled.clear()
        except BaseException:  # this thread was interrupted: nobody will take the answer
            with self._mutex:
                own = {id(write) for write in writes}
                self._waiting = [write for write in self._waiting if id(write) not in own]
            raise
        finally:
            self._pass_on(first)

    def ride(self, statement: str, row: Row) -> None:
        """Let ``row`` join a transaction soon: the next one that is not just a step, or one after RIDE_SECONDS.

        It only informs: a crash before that loses it.
        """
        with self._mutex:
            if not self._riders:
                self._riding_since = self._clock.monotonic()
            self._riders.append((statement, row))

    def flush_if_due(self) -> None:
        """Write the rows that have waited for a ride longer than RIDE_SECONDS: nothing else may come for a while."""
        if self._riders and self._clock.monotonic() >= self._riding_since + RIDE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait for a ride."""
        with self._turn:
            self._commit([])

    def transact(self, action: Callable[[], Any], *, in_order: bool = False) -> Any:
        """Run ``action`` in a transaction of its own, with conflicts retried; return what it returns.

        ``action`` may run several times and must write by the store only: another write of this writer would wait
        for ever. ``in_order`` tells that it changes nothing about what else can be claimed.
        """

        def once() -> Any:
            try:
                with self._store.transaction():
                    found = action()
            except BaseException:
                self.order += 1  # what it has taken of the candidates stays in the database
                raise
            self.order += not in_order
            return found

        with self._turn:
            self._mind_the_clock()
            return self._with_retries(once)

    def mind_the_clock(self) -> None:
        """Move all live deadlines if this process stood still or wall time was set."""
        with self._turn:
            self._mind_the_clock()

    # -- leading ------------------------------------------------------------------------------------------------

    def _lead(self, first: Write) -> None:
        while not first.done:
            with self._turn:
                self._gather()
                with self._mutex:
                    batch, self._waiting = self._waiting, []
                self._commit(batch)

    def _gather(self) -> None:
        """Wait a moment for the threads that were served together last: those that only compute come back at once.

        Otherwise they and those that came meanwhile would take turns, half as many in each transaction.
        """
        with self._mutex:
            if self._expected < 2 or len(self._waiting) >= self._expected:
                return
            self._gathered.clear()
        self._gathered.wait(GATHER_SECONDS)

    def _pass_on(self, first: Write) -> None:
        if self._leader is not first:
            return  # and nobody can make it the leader any more, since it does not wait
        with self._mutex:
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.settled.set()

    def _commit(self, batch: list[Write]) -> None:
        riders = self._boarding(batch)
        if not batch and not riders:
            return
        self._committing = False
        try:
            self._together(batch, riders)
        except BaseException:  # this thread was interrupted
            self._rescue(batch, riders)
            raise
        finally:
            settled = [write for write in batch if write.decided]
            with self._mutex:
                self._expected = len(batch) + len(self._waiting)
            for write in settled:
                write.done = True
            for write in settled:
                write.settled.set()

    def _boarding(self, batch: list[Write]) -> list[tuple[str, Row]]:
        with self._mutex:
            may_wait = batch and all(write.transition in _IN_PLACE for write in batch)
            if may_wait and self._clock.monotonic() < self._riding_since + RIDE_SECONDS:
                return []
            riders, self._riders = self._riders, []
            return riders

    def _together(self, batch: list[Write], riders: list[tuple[str, Row]]) -> None:
        try:
            self._mind_the_clock()
        except Exception as error:
            for write in batch:
                write.error = retold(error, write)
            return
        try:
            self._with_retries(lambda: self._apply(batch, riders))
        except Exception as error:
            if self._in_doubt(error):
                for write in batch:
                    write.error = retold(error, write)
            else:
                self._apart(batch, riders, error)

    def _apart(self, batch: list[Write], riders: list[tuple[str, Row]], error: Exception) -> None:
        if len(batch) == 1 and (not riders or isinstance(error, _CountDiffers)):
            batch[0].error = _meaning(error, batch[0])
        if riders:
            try:
                self._with_retries(lambda: self._apply([], riders))
            except Exception as refused:
                log.warning("informing rows were lost", extra={"rows": len(riders), "error": str(refused)})
        for write in batch:
            if write.decided:
                continue
            try:
                self._with_retries(lambda write=write: self._apply([write], []))  # type: ignore[misc]
            except Exception as alone:
                write.error = retold(alone, write) if self._in_doubt(alone) else _meaning(alone, write)

    def _rescue(self, batch: list[Write], riders: list[tuple[str, Row]]) -> None:
        """After an interrupt: what was certainly not written waits again, for another leader."""
        left = [write for write in batch if not write.decided]
        if self._committing:
            for write in left:
                write.error = StorageError(
                    f"{write.operation} was interrupted; whether it was written is not known",
                    operation=write.operation,
                )
            return
        with self._mutex:
            self._waiting[:0] = left
            self._riders[:0] = riders

    # -- transactions -------------------------------------------------------------------------------------------

    def _apply(self, batch: list[Write], riders: list[tuple[str, Row]]) -> None:
        self._committing = False
        now_us = self._clock.now_us()
        transitions = _grouped((write.transition, write.row) for write in batch)
        wishing = [write for write in batch if write.wish is not None]
        self.order += not transitions.keys() <= _IN_PLACE
        try:
            with self._store.transaction():
                for transition, rows in transitions.items():
                    changed = self._store.changed(transition, rows=rows, now_us=now_us)
                    if changed != len(rows):
                        raise _CountDiffers(transition, len(rows), changed)
                extra = (
                    (statement, row) for write in batch for statement, rows in write.extra for row in rows
                )
                for statement, rows in _grouped([*extra, *riders]).items():
                    self._store.run(statement, rows=rows, now_us=now_us)
                if wishing:
                    self._grant(wishing)
                self._committing = True
        except BaseException:
            for write in wishing:
                write.granted = None
            self.order += bool(wishing)  # what was granted of the candidates stays in the database
            raise
        for write in batch:
            write.at_us = now_us

    def _in_doubt(self, error: Exception) -> bool:
        return self._committing and not isinstance(error, ConflictError)

    def _mind_the_clock(self) -> None:
        gap = self._guard.look()
        if gap is None:
            return
        self.order += 1
        before: dict[int, int] = {}
        try:
            with self._store.transaction():
                before = dict(self._store.run("deadlines"))
                self._store.run("move_deadlines", then_us=gap.then_us, shift_us=gap.shift_us, now_us=gap.now_us)
        except StorageError:
            # To move them twice would end them when the clock was set back: if they stand moved, it was written.
            after: dict[int, int] = dict(self._store.query("deadlines"))
            if not any(after.get(seq) == deadline + gap.shift_us for seq, deadline in before.items()):
                raise
        self._moved(gap)
        self._guard.settled(gap)

    def _with_retries(self, action: Callable[[], Any]) -> Any:
        delay = FIRST_DELAY_SECONDS
        began = self._clock.monotonic()
        for tried in range(1, self._conflict_retries + 2):
            try:
                return action()
            except StorageError as error:
                error.attempts, error.elapsed_seconds = tried, self._clock.monotonic() - began
                if not isinstance(error, ConflictError) or tried > self._conflict_retries:
                    raise
                log.debug("write conflict, repeated", extra={"attempts": tried, "delay": delay})
                self._clock.sleep(delay * (0.5 + 0.5 * self._jitter()))
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)
        raise AssertionError("unreachable")


def _grouped(pairs: Iterable[tuple[str, Row]]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for name, row in pairs:
        groups.setdefault(name, []).append(row)
    return groups


def _meaning(error: Exception, write: Write) -> Exception:
    """Return what the error of a transaction means for the only write that was in it."""
    if not isinstance(error, _CountDiffers):
        return error
    if error.found > error.expected:
        return ProtocolError(
            f"{write.operation} of task {write.task_id} changed {error.found} rows, not one",
            operation=write.operation,
        )
    return LeaseLost(write.task_id, write.attempt, operation=write.operation)


def retold(error: Exception, write: Write) -> StorageError:
    """Return an error of the write's own: one exception must not be raised in several threads."""
    text = f"{write.operation} of task {write.task_id}: {error}"
    if isinstance(error, OwnerUnreachable):
        told: StorageError = OwnerUnreachable(
            text, operation=write.operation, sent=error.sent, closing=error.closing
        )
    else:
        told = StorageError(text, operation=write.operation)
    if isinstance(error, StorageError):
        told.attempts, told.elapsed_seconds = error.attempts, error.elapsed_seconds
    told.__cause__ = error
    return told
