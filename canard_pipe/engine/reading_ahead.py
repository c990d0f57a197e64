"""Candidates that a worker has read ahead, so that not every claim looks through all ready tasks.

What this process does to the order of tasks (spawning, failing, waking, cancelling ...) makes the worker read anew at
its next claim. What comes from elsewhere (a task of another process, one that becomes due) is seen when the time of
what was read is over, as at a poll. The fence is the same: a claim compares the version that was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from canard_pipe.engine.clock import Clock
from canard_pipe.engine.store import Rows

MOST = 64
SECONDS = 0.1
TIMES_THE_READ = 10  # where reading takes long, so that it takes a tenth of the time at most


class Ahead:
    """The next candidates of all workers of a database. Used by one thread at a time."""

    def __init__(self) -> None:
        self._rows: deque[tuple[Any, ...]] = deque()
        self._read_as: Any = None
        self._until = float("-inf")

    def take(self, limit: int, read_as: Any, clock: Clock, read: Callable[[int], Rows]) -> Rows:
        """Return the next ``limit`` rows; by ``read(how many)`` if there are not as many, or not for ``read_as``."""
        if len(self._rows) < limit or self._read_as != read_as or clock.monotonic() >= self._until:
            self._rows.clear()
            began = clock.monotonic()
            self._rows.extend(read(max(limit, MOST)))
            ended = clock.monotonic()
            self._read_as, self._until = read_as, ended + max(SECONDS, TIMES_THE_READ * (ended - began))
        return self._first(limit)

    def at_hand(self, limit: int, read_as: Any, clock: Clock) -> Rows:
        """Return as many of the next ``limit`` rows as were read for ``read_as`` and are still fresh; read nothing."""
        return self._first(limit) if self._read_as == read_as and clock.monotonic() < self._until else []

    def _first(self, limit: int) -> Rows:
        return [self._rows.popleft() for _ in range(min(limit, len(self._rows)))]
