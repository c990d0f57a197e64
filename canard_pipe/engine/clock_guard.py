"""Notices that this process stood still, or that wall time was set, so that no lease is lost by it.

Leases are instants of wall time. When the machine was suspended or the clock was set, wall time and monotonic time
have gone apart since the last look. When the process was stopped (SIGSTOP) they have not, but a pulse that should
have come several times meanwhile has not come. Either way the owner first moves all live deadlines by the gap, then
goes on (docs/design.md, "State and fence"). Without a pulse only the first is noticed: a process whose handler
computes for an hour looks the same as one that was stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from canard_pipe.engine.clock import Clock
from canard_pipe.errors import CanardError

log = logging.getLogger(__name__)
TOLERANCE_SECONDS = 1.0  # smaller gaps are left alone: a busy machine, a clock that is kept right


@dataclass(frozen=True, slots=True)
class Gap:
    """What was ``then_us`` is ``now_us``: deadlines are to be moved by ``shift_us``, the difference."""

    then_us: int
    shift_us: int
    now_us: int


class ClockGuard:
    """Compares wall time with monotonic time and with the pulse, each time it is asked to look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pulses = 0  # how many pulses are beating
        self._seen = self._read()

    def look(self) -> Gap | None:
        """Return the gap since the last look, None if there is none. It stays until :meth:`settled`."""
        with self._lock:
            wall_us, monotonic = self._read()
            seen_us, seen_monotonic = self._seen
            lived = monotonic - seen_monotonic
            if self._pulses and lived > TOLERANCE_SECONDS:
                lived = 0.0
            then_us = seen_us + round(lived * 1e6)
            shift_us = wall_us - then_us
            if abs(shift_us) > TOLERANCE_SECONDS * 1e6:
                return Gap(then_us, shift_us, wall_us)
            self._seen = wall_us, monotonic
            return None

    def settled(self, gap: Gap) -> None:
        """Note that the deadlines have been moved by ``gap``."""
        with self._lock:
            self._seen = gap.now_us, self._clock.monotonic()
        log.warning("the clock went apart by %.1f s; leases were moved along", gap.shift_us / 1e6)

    @contextmanager
    def pulse(self, seconds: float, settle: Callable[[], None]) -> Iterator[None]:
        """Let a thread look every ``seconds`` within the block; it calls ``settle`` when there is a gap."""
        settle()  # what went before is not this pulse's
        over = threading.Event()

        def beat() -> None:
            while not over.wait(seconds):
                if self.look() is not None:
                    try:
                        settle()
                    except CanardError as error:  # the next look finds the same gap
                        log.warning("leases could not be moved: %s", error)

        thread = threading.Thread(target=beat, name="pulse", daemon=True)
        self._count(+1)
        thread.start()
        try:
            yield
        finally:
            self._count(-1)
            over.set()
            thread.join()

    def _count(self, by: int) -> None:
        with self._lock:
            self._pulses += by
            if by > 0:
                self._seen = self._read()

    def _read(self) -> tuple[int, float]:
        # A pause between the two readings would look like a gap.
        while True:
            before = self._clock.monotonic()
            wall_us = self._clock.now_us()
            after = self._clock.monotonic()
            if after - before < TOLERANCE_SECONDS / 10:
                return wall_us, after
