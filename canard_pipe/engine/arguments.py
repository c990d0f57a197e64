"""Checks of callers' arguments; they run before any effect and name the argument (G16)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from canard_pipe.errors import InputError

LONGEST_SECONDS = 1e10  # three centuries; instants of the database reach further
STATES = ("ready", "running", "suspended", "completed", "failed", "cancelled")


def text(name: str, value: object, longest: int) -> str:
    """Return ``value`` if it is text of 1 to ``longest`` characters (L15)."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {type(value).__name__}")
    if not 1 <= len(value) <= longest:
        raise InputError(f"{name} must have 1 to {longest} characters, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is not valid Unicode: {value!r}") from error
    return value


def texts(name: str, value: object, longest: int) -> list[str]:
    """Return a list of the texts in a collection; a text by itself is refused."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a collection of texts, not {type(value).__name__}")
    return [text(name, item, longest) for item in value]


def whole(name: str, value: object, least: int, most: int) -> int:
    """Return ``value`` if it is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InputError(f"{name} must be from {least} to {most}, not {value}")
    return value


def seconds(name: str, value: object, *, zero: bool = False, endless: bool = False) -> float:
    """Return ``value`` if it is a duration in seconds: positive, or also 0 or infinite where that is allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if math.isnan(value) or value < 0 or (value == 0 and not zero) or (math.isinf(value) and not endless):
        raise InputError(f"{name} must be {'0 or more' if zero else 'more than 0'} seconds, not {value}")
    if not math.isinf(value) and (value > LONGEST_SECONDS or (not zero and round(value * 1e6) == 0)):
        raise InputError(f"{name} must be from 0.000001 to {LONGEST_SECONDS:.0f} seconds, not {value}")
    return float(value)


def states(value: str | Collection[str] | None) -> list[str] | None:
    """Return a list of task states, or None for all."""
    if value is None:
        return None
    given = [value] if isinstance(value, str) else list(value)
    for state in given:
        if state not in STATES:
            raise InputError(f"unknown state {state!r}; states are {', '.join(STATES)}")
    return given
