"""When a failed task is tried again, and which exceptions end it at once (L8)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from canard_pipe.engine import arguments
from canard_pipe.errors import InputError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Wait ``first_seconds`` after the first failure, ``factor`` times as long after each further one, at most
    ``longest_seconds``; of that, a random part from one half on, so that tasks that failed together do not come again
    together. An exception of a type in ``fatal`` fails the task at once, whatever is left of its budget.

    ``random`` gives numbers from 0 to 1. Raises InputError.
    """

    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    factor: float = 2.0
    fatal: tuple[type[BaseException], ...] = ()
    random: Callable[[], float] = random.Random().random  # a stream of its own: the caller's is untouched (G20)

    def __post_init__(self) -> None:
        arguments.seconds("first_seconds", self.first_seconds, zero=True)
        arguments.seconds("longest_seconds", self.longest_seconds, zero=True)
        if not isinstance(self.factor, int | float) or not 1 <= self.factor <= 1000:
            raise InputError(f"factor must be a number from 1 to 1000, not {self.factor!r}")
        if not isinstance(self.fatal, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.fatal
        ):
            raise InputError(f"fatal must be a tuple of exception types, not {self.fatal!r}")

    def delay_seconds(self, failures: int) -> float:
        """Return how long to wait when there were ``failures`` failures before this one."""
        seconds = self.first_seconds
        for _ in range(failures):  # ends soon: a power of many failures would be too large for a float
            if seconds >= self.longest_seconds or self.factor == 1 or seconds == 0:
                break
            seconds *= self.factor
        return min(seconds, self.longest_seconds) * (0.5 + 0.5 * self.random())

    def is_fatal(self, error: BaseException) -> bool:
        """Tell whether ``error`` ends its task at once."""
        return isinstance(error, self.fatal)
