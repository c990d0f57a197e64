"""What commands ask for (cpus, memory, time, named limits) and the budget that hands it out."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from canard_pipe.errors import BudgetError, InputError

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)I?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhd]\s*)+", re.IGNORECASE)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
AGEING_SECONDS = 30.0


def parse_memory(value: str | int) -> int:
    """Return bytes. ``4G``, ``512 MB``, ``1.5GiB`` (all by 1024) or a whole number of bytes. Raises InputError."""
    if isinstance(value, int) and not isinstance(value, bool):
        size: float = value
    else:
        match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise InputError(f"memory {value!r} is not a size such as '4G', '512M' or a number of bytes")
        size = float(match[1]) * 1024 ** _POWERS[match[2].upper()]
    if size < 1:
        raise InputError(f"memory must be at least one byte, not {value!r}")
    return int(size)


def parse_seconds(value: str | float) -> float:
    """Return seconds. ``90s``, ``30m``, ``2h``, ``1d``, ``1h30m``, ``H:MM:SS``, ``D-HH:MM:SS`` or a number of seconds.

    Raises InputError, also for nothing, less than nothing and forever.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        seconds = _seconds_of_text(value)
    if not 0 < seconds < math.inf:
        raise InputError(f"a time must be more than 0 seconds and end, not {value!r}")
    return seconds


def _seconds_of_text(value: object) -> float:
    text = value.strip() if isinstance(value, str) else ""
    if _DURATION.fullmatch(text):
        return sum(float(number) * _SECONDS[unit.lower()] for number, unit in _DURATION_PART.findall(text))
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        raise InputError(f"time {value!r} is not a duration such as '90s', '30m', '2h' or '1:30:00'")
    days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


@dataclass(frozen=True, slots=True)
class Escalate:
    """A request that grows when it was too small: ``Escalate("4G", max="32G")``, ``Escalate("1h", max="8h")``.

    Each failure *for that reason* (out of memory for memory, timeout for time) multiplies it by ``factor``, never
    beyond ``max``, nor beyond what the machine has. A failure for another reason changes nothing (BUGS 39).
    With ``least`` the start may be computed, ``Escalate(3 * sample.input_bytes, least="2G", max="32G")``: what is below
    ``least`` or beyond ``max`` is brought there; without it a start beyond ``max`` is an error.
    """

    start: str | float
    max: str | float = field(kw_only=True)
    least: str | float | None = field(default=None, kw_only=True)
    factor: float = field(default=2.0, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not self.factor >= 1:
            raise InputError(f"the factor of Escalate must be 1 or more, not {self.factor!r}")

    def bytes(self, failures: int) -> int:
        """Return the memory to ask for after so many failures for lack of it."""
        return int(self._grown(_bytes, failures))

    def seconds(self, failures: int) -> float:
        """Return the time to ask for after so many timeouts."""
        return self._grown(parse_seconds, failures)

    def _grown(self, parse: Callable[[str | float], float], failures: int) -> float:
        most = parse(self.max)
        value = self._start(parse, most)
        if most < value:
            raise InputError(f"Escalate starts at {self.start!r}, which is more than its max {self.max!r}")
        for _ in range(failures):
            if value >= most or self.factor == 1:
                break
            value *= self.factor
        return min(value, most)

    def _start(self, parse: Callable[[str | float], float], most: float) -> float:
        if self.least is None:
            return parse(self.start)
        computed = self.start if isinstance(self.start, int | float) else parse(self.start)
        return min(max(computed, parse(self.least)), most)


def _bytes(value: str | float) -> int:
    return parse_memory(int(value) if isinstance(value, float) else value)


def memory_bytes(value: str | int | Escalate | None, failures: int = 0) -> int | None:
    """Return a request for memory in bytes; None stays None."""
    if value is None:
        return None
    return value.bytes(failures) if isinstance(value, Escalate) else parse_memory(value)


def time_seconds(value: str | float | Escalate | None, failures: int = 0) -> float | None:
    """Return a request for time in seconds; None stays None."""
    if value is None:
        return None
    return value.seconds(failures) if isinstance(value, Escalate) else parse_seconds(value)


def more_memory(asked: str | int | Escalate | None, least: int) -> str | int | Escalate:
    """Return a request for at least ``least`` bytes; one that grows starts there, and may grow past its max."""
    if isinstance(asked, Escalate):
        return dataclasses.replace(asked, start=max(_bytes(asked.start), least), max=max(_bytes(asked.max), least))
    return least if asked is None else max(parse_memory(asked), least)


def more_time(asked: str | float | Escalate, least: float) -> str | float | Escalate:
    """Return a request for at least ``least`` seconds, as :func:`more_memory` does."""
    if isinstance(asked, Escalate):
        start, most = parse_seconds(asked.start), parse_seconds(asked.max)
        return dataclasses.replace(asked, start=max(start, least), max=max(most, least))
    return max(parse_seconds(asked), least)


def parse_limits(value: Mapping[str, int] | Iterable[str] | None) -> dict[str, int]:
    """Return named limits with how much of each is taken: ``["licence"]`` takes one, ``{"licence": 2}`` two."""
    if value is None:
        return {}
    if isinstance(value, str):
        raise InputError(f"limits must be a list of names or a dict, not the text {value!r}")
    limits = dict(value) if isinstance(value, Mapping) else dict.fromkeys(value, 1)
    for name, amount in limits.items():
        if not isinstance(name, str) or isinstance(amount, bool) or not isinstance(amount, int) or amount < 1:
            raise InputError(f"limits must map names to whole numbers from 1, not {name!r} to {amount!r}")
    return limits


@dataclass(frozen=True, slots=True)
class Request:
    """What one command takes from the budget while it runs. ``memory_bytes`` 0: not accounted."""

    cpus: float = 1
    memory_bytes: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.cpus, bool) or not isinstance(self.cpus, int | float) or not 0 < self.cpus < math.inf:
            raise InputError(f"cpus must be a number above 0, not {self.cpus!r}")

    def amounts(self) -> dict[str, int]:
        """Return whole amounts by resource; cpus in thousandths, so that sums are exact."""
        needs = {"cpus": max(1, round(self.cpus * 1000)), "memory": self.memory_bytes}
        return needs | {f"limit {name}": amount for name, amount in self.limits.items()}


@dataclass(frozen=True, slots=True)
class Most:
    """The most memory and time that one command can get; None: as much as it likes, or not known."""

    memory_bytes: int | None = None
    seconds: float | None = None


class Ticket:
    """A place in the queue of a budget. Waiting, then granted; or withdrawn by another thread."""

    def __init__(self, budget: Budget, request: Request, since: float) -> None:
        self.request, self.since = request, since
        self.needs = request.amounts()
        self._budget = budget
        self._decided = threading.Event()
        self.granted = False

    def wait(self) -> bool:
        """Block until decided; tell whether it was granted (False: withdrawn)."""
        self._decided.wait()
        return self.granted

    def withdraw(self) -> None:
        """Leave the queue, if still in it; who waits is told. From any thread."""
        self._budget._withdraw(self)

    def release(self) -> None:
        """Give back what was granted, or leave the queue. Once."""
        self._budget._release(self)

    def _decide(self, granted: bool) -> None:
        self.granted = granted
        self._decided.set()


class Budget:
    """What commands share: cpus, memory and named limits.

    First come first served, but who fits may pass one who does not, as long as that one has waited less than
    ``ageing_seconds``. From then on what is free is kept for it, so that a large request is not starved; others
    pass only with what it does not need. Never more than the whole is out (BUGS 58).
    """

    def __init__(
        self,
        cpus: float,
        memory_bytes: int,
        limits: Mapping[str, int] | None = None,
        *,
        monotonic: Callable[[], float],
        ageing_seconds: float = AGEING_SECONDS,
    ) -> None:
        self.whole = Request(cpus, memory_bytes, parse_limits(limits))
        self._free = self.whole.amounts()
        self._monotonic, self._ageing_seconds = monotonic, ageing_seconds
        self._queue: list[Ticket] = []
        self._lock = threading.Lock()

    def check(self, request: Request) -> None:
        """Raise BudgetError if ``request`` is more than the whole budget: it could never start."""
        whole = self.whole.amounts()
        for name, amount in request.amounts().items():
            if name not in whole:
                known = ", ".join(sorted(self.whole.limits)) or "none is defined"
                raise BudgetError(
                    f"there is no limit named {name.removeprefix('limit ')!r} ({known}); "
                    "name it in limits= of the pipeline, or give --limit NAME=N to the run"
                )
            if amount > whole[name]:
                raise BudgetError(
                    f"a command asks for {_shown(name, amount)}, but all there is are {_shown(name, whole[name])}"
                )

    def ask(self, request: Request) -> Ticket:
        """Queue for ``request`` and return at once; wait on the ticket and release it. Raises BudgetError."""
        self.check(request)
        ticket = Ticket(self, request, self._monotonic())
        with self._lock:
            self._queue.append(ticket)
            self._hand_out()
        return ticket

    @contextmanager
    def taken(self, request: Request) -> Iterator[None]:
        """Hold ``request`` for a while; waits for it."""
        ticket = self.ask(request)
        try:
            ticket.wait()
            yield
        finally:
            ticket.release()

    def free(self) -> dict[str, float]:
        """Return what nobody holds: ``cpus``, ``memory`` in bytes, and each ``limit NAME``."""
        with self._lock:
            return self._free | {"cpus": self._free["cpus"] / 1000}

    def _hand_out(self) -> None:
        if not self._free["cpus"]:  # everything takes some
            return
        now = self._monotonic()
        free = dict(self._free)  # what the one at hand may take: less what is kept for those before
        waiting = []
        for ticket in self._queue:
            if all(amount <= free[name] for name, amount in ticket.needs.items()):
                for name, amount in ticket.needs.items():
                    free[name] -= amount
                    self._free[name] -= amount
                ticket._decide(True)
                continue
            waiting.append(ticket)
            if now - ticket.since >= self._ageing_seconds:
                for name, amount in ticket.needs.items():
                    free[name] -= min(free[name], amount)
        self._queue = waiting

    def _withdraw(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                ticket._decide(False)
                self._hand_out()

    def _release(self, ticket: Ticket) -> None:
        self._withdraw(ticket)
        with self._lock:
            if ticket.granted:
                ticket.granted = False
                for name, amount in ticket.needs.items():
                    self._free[name] += amount
                self._hand_out()


def _shown(name: str, amount: int) -> str:
    if name == "cpus":
        return f"{amount / 1000:g} cpus"
    if name == "memory":
        return f"{amount / 1024**3:.3g} GiB of memory"
    return f"{amount} of {name}"


def machine_cpus() -> int:
    """Return how many cpus this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_memory() -> int:
    """Return the memory in bytes that this process may use: the machine's, or its control group's if that is less."""
    total = int(psutil.virtual_memory().total)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total
