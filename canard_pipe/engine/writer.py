"""One writer per process: what waits to be written is gathered into one transaction.

A caller of :meth:`Writer.write` returns when its write is durable, or raises. Whoever finds nobody committing
leads: it commits everything that waits (group commit), then hands the lead to one who waits. So 32 threads that
save a step at once cost about one transaction, and no thread of its own is needed.

A transition is fenced: its statement changes exactly one row for each write, or the claim is no longer current.
If the count of a gathered transaction differs, it is rolled back and each write is tried by itself, so that one
stale claim fails alone.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from canard_pipe.engine.clock import Clock
from canard_pipe.engine.store import Store
from canard_pipe.errors import ConflictError, LeaseLost, ProtocolError, StorageError

log = logging.getLogger(__name__)
Row = dict[str, Any]


@dataclass(slots=True, eq=False)
class Write:
    """One fenced transition of one claim: the row for ``transition``, and further statements with their rows."""

    transition: str
    row: Row
    task_id: str
    attempt: int
    operation: str
    extra: tuple[tuple[str, Sequence[Row]], ...] = ()
    done: bool = False
    error: BaseException | None = None
    settled: threading.Event = field(default_factory=threading.Event)


class _CountDiffers(Exception):
    def __init__(self, transition: str, expected: int, found: int) -> None:
        super().__init__(transition)
        self.expected, self.found = expected, found


class Writer:
    """Gathers writes and commits them. Conflicts are retried ``conflict_retries`` times, never handler code (G7)."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        conflict_retries: int = 8,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._conflict_retries = conflict_retries
        self._jitter = jitter or random.Random().random  # its own stream: the caller's is untouched (G20)
        self._mutex = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: list[Write] = []
        self._led = False  # somebody commits, or has been told to
        self._riders: list[tuple[str, Row]] = []

    def write(self, write: Write) -> None:
        """Commit ``write``, together with what else waits. Raises LeaseLost if its claim is not current."""
        self.write_all([write])
        if write.error is not None:
            raise write.error

    def write_all(self, writes: Sequence[Write]) -> None:
        """Commit many writes together; what went wrong with each is in its ``error``, nothing is raised for it."""
        if not writes:
            return
        with self._mutex:
            self._waiting.extend(writes)
            lead, self._led = not self._led, True
        if lead:
            self._lead(writes)
        try:
            for write in writes:
                write.settled.wait()
                while not write.done:
                    write.settled.clear()
                    self._lead(writes)
                    write.settled.wait()
        except BaseException:  # interrupted while waiting: others must not wait for this thread's lead
            self._abandon(writes)
            raise

    def ride(self, statement: str, row: Row) -> None:
        """Let ``row`` join the next transaction. It only informs: a crash before that loses it."""
        with self._mutex:
            self._riders.append((statement, row))

    def flush(self) -> None:
        """Write the rows that wait for a ride."""
        with self._turn:
            self._commit([])

    def transact(self, action: Callable[[], Any]) -> Any:
        """Run ``action`` in a transaction of its own, with conflicts retried; return what it returns."""

        def once() -> Any:
            with self._store.transaction():
                return action()

        with self._turn:
            return self._with_retries(once)

    def _lead(self, own: Sequence[Write]) -> None:
        """Commit what waits until ``own`` is done, then hand the lead on."""
        try:
            while not all(write.done for write in own):
                with self._turn:
                    with self._mutex:
                        batch, self._waiting = self._waiting, []
                    try:
                        self._commit(batch)
                    finally:
                        self._settle(batch)
        finally:
            with self._mutex:
                self._pass_on()

    def _pass_on(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].settled.set()

    def _abandon(self, writes: Sequence[Write]) -> None:
        with self._mutex:
            led_here = any(write.settled.is_set() and not write.done for write in writes)
            self._waiting = [write for write in self._waiting if write not in writes]
            if led_here:
                self._pass_on()

    def _settle(self, batch: list[Write]) -> None:
        for write in batch:
            if not write.done and write.error is None:  # interrupted while committing: nobody knows
                write.error = StorageError(f"{write.operation} was interrupted", operation=write.operation)
            write.done = True
            write.settled.set()

    def _commit(self, batch: list[Write]) -> None:
        with self._mutex:
            riders, self._riders = self._riders, []
        if not batch and not riders:
            return
        try:
            self._with_retries(lambda: self._apply(batch, riders))
        except (_CountDiffers, ConflictError) as error:
            self._ride_alone(riders)
            self._one_by_one(batch, error)
        except StorageError as error:
            # Perhaps committed, perhaps not: it surfaces to every caller and is not repeated (G8, S25).
            for write in batch:
                write.error = error
        else:
            for write in batch:
                write.done = True

    def _one_by_one(self, batch: list[Write], error: Exception) -> None:
        if len(batch) == 1:
            batch[0].error = _meaning(error, batch[0])
            return
        for write in batch:
            try:
                self._with_retries(lambda write=write: self._apply([write], []))  # type: ignore[misc]
            except (_CountDiffers, StorageError) as alone:
                write.error = _meaning(alone, write)
            else:
                write.done = True

    def _ride_alone(self, riders: list[tuple[str, Row]]) -> None:
        if riders:
            try:
                self._with_retries(lambda: self._apply([], riders))
            except StorageError as error:
                log.warning("informing rows were lost", extra={"rows": len(riders), "error": str(error)})

    def _apply(self, batch: list[Write], riders: list[tuple[str, Row]]) -> None:
        now_us = self._clock.now_us()
        with self._store.transaction():
            for transition, rows in _grouped((write.transition, write.row) for write in batch).items():
                changed = self._store.changed(transition, rows=json.dumps(rows), now_us=now_us)
                if changed != len(rows):
                    raise _CountDiffers(transition, len(rows), changed)
            extra = (
                (statement, row) for write in batch for statement, rows in write.extra for row in rows
            )
            for statement, rows in _grouped([*extra, *riders]).items():
                self._store.run(statement, rows=json.dumps(rows), now_us=now_us)

    def _with_retries(self, action: Callable[[], Any]) -> Any:
        delay = 0.01
        for tried in range(1, self._conflict_retries + 2):
            try:
                return action()
            except ConflictError as error:
                error.attempts = tried
                if tried > self._conflict_retries:
                    raise
                log.debug("write conflict, repeated", extra={"attempts": tried, "delay": delay})
                self._clock.sleep(delay * (0.5 + 0.5 * self._jitter()))
                delay = min(delay * 2, 0.5)
        raise AssertionError("unreachable")


def _grouped(pairs: Any) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for name, row in pairs:
        groups.setdefault(name, []).append(row)
    return groups


def _meaning(error: Exception, write: Write) -> BaseException:
    if not isinstance(error, _CountDiffers):
        return error
    if error.found > error.expected:
        return ProtocolError(
            f"{write.operation} of task {write.task_id} changed {error.found} rows, not one",
            operation=write.operation,
        )
    return LeaseLost(write.task_id, write.attempt, operation=write.operation)
