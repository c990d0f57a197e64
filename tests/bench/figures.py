"""What a benchmark returns, and how it is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line: ``value`` in ``unit``; ``goal`` is the largest value that is meant, None if there is none."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    details: str = ""

    def __str__(self) -> str:
        verdict = "" if self.goal is None else f"goal {self.goal:g}: {'met' if self.value <= self.goal else 'MISSED'}"
        return f"{self.name:48} {self.value:10.3f} {self.unit:8} {verdict:22} {self.details}".rstrip()


def seconds(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes."""
    began = perf_counter()
    action()
    return perf_counter() - began


def low(values: Iterable[float]) -> float:
    """Return the lower quartile: what is taken when nothing else disturbs, without trusting a single value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]
