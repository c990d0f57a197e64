"""Time as an argument: everything that needs the time is given a Clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine asks of time."""

    def now_us(self) -> int:
        """Return wall time in microseconds since 1970, UTC (S46)."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own time."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
