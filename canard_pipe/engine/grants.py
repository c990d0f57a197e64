"""What a claim is given and how it ends, as plain records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as stored: JSON text, not yet a value."""

    ordinal: int
    name: str
    kind: str
    text: str
    place: int  # in the handler; see step_order.py


@dataclass(frozen=True, slots=True)
class Grant:
    """What a claim statement granted: the facts of one attempt."""

    id: str
    seq: int
    name: str
    attempt: int
    failures: int
    max_failures: int
    token: str
    worker: str
    started_us: int
    deadline_us: int
    lease_seconds: float
    input: str
    saved: tuple[Saved, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended: its outcome in the history, and the task's state after it."""

    outcome: str
    state: str
