"""Rows of the table ``outputs``: what was accepted and published, and by whom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from canard_pipe.engine import mapping
from canard_pipe.pipeline.staging import Content


class Tasks(Protocol):
    """What publishing asks of the engine's tasks, wherever their file is open."""

    @property
    def root(self) -> Path:
        """The launch folder."""

    def query(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Execute a named read."""


class Database(Tasks, Protocol):
    """What settling asks of the owner's database."""

    def write(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        """Execute a named statement in a transaction of its own, not under a claim; durable on return."""


@dataclass(frozen=True, slots=True)
class AcceptId:
    """The name of one acceptance, also of its staging file: ``SEQ-ATTEMPT-STEP-UNIQUE``.

    ``step`` is a digest of the step that publishes, so that two steps of one task with one target are told apart.
    """

    task_seq: int
    attempt: int
    step: str
    unique: str

    def __str__(self) -> str:
        return f"{self.task_seq}-{self.attempt}-{self.step}-{self.unique}"

    @classmethod
    def parse(cls, text: str) -> AcceptId | None:
        """Return the accept id that a staging name begins with, or None if it is not one."""
        parts = text.partition(".")[0].split("-")
        if len(parts) != 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])


@dataclass(frozen=True, slots=True)
class Output:
    """One row: the latest acceptance of one target. Instants are microseconds since 1970, UTC."""

    target_key: str
    target: str
    kind: str
    source: str
    staging: str
    accept_id: str
    size: int
    checksum: str
    task_seq: int
    attempt: int
    state: str
    accepted_us: int
    published_us: int | None
    task_id: str | None

    @property
    def content(self) -> Content:
        return Content(self.kind, self.size, self.checksum)

    @property
    def step(self) -> str:
        accept_id = AcceptId.parse(self.accept_id)
        return "" if accept_id is None else accept_id.step

    def named(self) -> dict[str, Any]:
        """Return the row that names this acceptance in a statement."""
        return {"target_key": self.target_key, "accept_id": self.accept_id}

    def before(self) -> dict[str, Any]:
        """Return the columns that withdraw_outputs.sql needs to bring this row back."""
        return {
            "before": self.accept_id, "target": self.target, "kind": self.kind, "source": self.source,
            "staging": self.staging, "size": self.size, "checksum": self.checksum, "task_seq": self.task_seq,
            "attempt": self.attempt, "accepted_us": self.accepted_us, "published_us": self.published_us,
        }


def known(database: Tasks, keys: Iterable[str]) -> dict[str, Output]:
    """Return the rows of these target keys."""
    rows = database.query("known_outputs", keys=json.dumps(sorted(set(keys))))
    return {row[0]: Output(*row) for row in rows}


def accepted(database: Database, task_seq: int | None = None) -> list[Output]:
    """Return what was accepted and is not known to be in its place, of one task or of all."""
    return [Output(*row) for row in database.query("accepted_outputs", task_seq=task_seq)]


def published(database: Database) -> list[Output]:
    """Return all published rows, by target."""
    return [Output(*row) for row in database.query("published_outputs")]


def of_task(database: Tasks, task_seq: int) -> list[Output]:
    """Return what a task has published, by target."""
    return [Output(*row) for row in database.query("outputs_of_task", task_seq=task_seq)]


def superseded(database: Database) -> list[Output]:
    """Return what earlier generations have published and the complete present one has not made again, by target."""
    return [Output(*row) for row in database.query("superseded_outputs")]


def step_digest(name: str | None) -> str:
    """Return the digest of a step's name that an accept id holds."""
    return hashlib.sha256((name or "").encode()).hexdigest()[:8]


def owner_of(task_id: str) -> str:
    """Return the task's id without its generation: a later generation of a sample may replace its results."""
    root = mapping.root_of(task_id)
    head, _, generation = root.rpartition("/")
    return head + task_id[len(root):] if generation.isdecimal() and head else task_id


def stored(path: Path, root: Path) -> str:
    """Return the text that is stored for a path: relative to the launch folder if it lies below it."""
    for above in (root, root.resolve()):  # a source has its links resolved
        if path.is_relative_to(above):
            return path.relative_to(above).as_posix()
    return str(path)
