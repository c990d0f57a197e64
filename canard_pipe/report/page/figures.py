"""Tries summed up: by step over all samples, and by row of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from canard_pipe.report.page.tries import Tried
from canard_pipe.report.wording import memory

WASTED_MEMORY = 256 << 20  # less is not worth a word
IDLE = 0.5


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The commands of one step. Seconds, bytes; None where no try tells it. ``efficiency``: cpu time used of that
    reserved, the median of the good tries."""

    label: str
    commands: int
    tries: int
    failed: int
    total_seconds: float
    median_seconds: float | None
    longest_seconds: float | None
    cpu_seconds: float
    efficiency: float | None
    cpus: float | None
    asked_bytes: int | None
    median_bytes: float | None
    most_bytes: int | None
    read_bytes: int
    written_bytes: int

    @property
    def remark(self) -> str:
        """Return what could be asked for instead, where much is left over; empty where nothing is to be said."""
        said = []
        asked, most = self.asked_bytes, self.most_bytes
        if asked and most and asked > 2 * most and asked - most >= WASTED_MEMORY:
            said.append(f"asks for {memory(asked)} and used {memory(most)} at most")
        if self.efficiency is not None and (self.cpus or 1) > 1 and self.efficiency < IDLE:
            said.append(f"asks for {self.cpus:g} cpus and kept {self.efficiency * (self.cpus or 1):.1f} busy")
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class RowFigures:
    """The commands of one row of the plan and of its items. ``last`` holds the latest try of each command."""

    tries: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int | None = None
    started_us: int | None = None
    ended_us: int | None = None
    last: tuple[Tried, ...] = ()
    counts: tuple[int, ...] = ()


def by_step(tries: Iterable[Tried]) -> list[StepFigures]:
    """Return the figures of each step, in the order in which steps first appear."""
    found: dict[str, list[Tried]] = {}
    for each in tries:
        found.setdefault(each.label, []).append(each)
    return [_step(label, members) for label, members in found.items()]


def by_row(tries: Iterable[Tried]) -> dict[int, RowFigures]:
    """Return the figures of each row by the ``seq`` of its task."""
    found: dict[int, list[Tried]] = {}
    for each in tries:
        found.setdefault(each.seq, []).append(each)
    return {seq: _row(members) for seq, members in found.items()}


def _step(label: str, tries: Sequence[Tried]) -> StepFigures:
    ran = [each.seconds for each in tries if each.seconds is not None and each.good]
    peaks = [each.peak_memory_bytes for each in tries if each.peak_memory_bytes is not None]
    shares = [
        (each.cpu_seconds or 0.0) / (each.seconds * (each.cpus or 1)) for each in tries if each.good and each.seconds
    ]
    return StepFigures(
        label=label,
        commands=len({each.command for each in tries}),
        tries=len(tries),
        failed=sum(each.bad for each in tries),
        total_seconds=sum(each.seconds or 0.0 for each in tries),
        median_seconds=median(ran) if ran else None,
        longest_seconds=max(ran) if ran else None,
        cpu_seconds=sum(each.cpu_seconds or 0.0 for each in tries),
        efficiency=median(shares) if shares else None,
        cpus=max((each.cpus for each in tries if each.cpus is not None), default=None),
        asked_bytes=max((each.memory_bytes for each in tries if each.memory_bytes is not None), default=None),
        median_bytes=median(peaks) if peaks else None,
        most_bytes=max(peaks) if peaks else None,
        read_bytes=sum(each.read_bytes or 0 for each in tries),
        written_bytes=sum(each.written_bytes or 0 for each in tries),
    )


def _row(tries: Sequence[Tried]) -> RowFigures:
    commands: dict[tuple[int, str, str, int], list[Tried]] = {}
    for each in tries:
        commands.setdefault(each.command, []).append(each)
    return RowFigures(
        tries=len(tries),
        failed=sum(each.bad for each in tries),
        seconds=sum(each.seconds or 0.0 for each in tries),
        cpu_seconds=sum(each.cpu_seconds or 0.0 for each in tries),
        peak_bytes=max((each.peak_memory_bytes for each in tries if each.peak_memory_bytes is not None), default=None),
        started_us=min((each.started_us for each in tries if each.started_us is not None), default=None),
        ended_us=max((each.ended_us for each in tries if each.ended_us is not None), default=None),
        last=tuple(members[-1] for members in commands.values()),
        counts=tuple(len(members) for members in commands.values()),
    )
