"""Events, and steps that wait for events and for other tasks (L1, L9).

Nothing is pushed: a suspended task is woken because of what is committed (wakeable_tasks.sql), so an event that is
emitted, or a task that ends, between a handler's look and its suspension is not missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import arguments
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.grants import Saved
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.values import Codec
from canard_pipe.errors import InputError, StorageError

if TYPE_CHECKING:
    from canard_pipe.engine.claim import Claim
    from canard_pipe.engine.tasks import Tasks

KIND, MARKER = "wait", "waiting"  # kinds of checkpoints: what a wait has brought, and that one has begun


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended: ``state`` is completed, failed or cancelled; ``result`` is None unless completed."""

    state: str
    result: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Waited:
    """What a wait has brought: values of events and ends of tasks, by name and ID.

    ``missing`` names what had not come when the time was over; it is empty otherwise.
    """

    events: dict[str, Any]
    tasks: dict[str, TaskEnd]
    missing: tuple[str, ...]

    @property
    def timed_out(self) -> bool:
        """Whether the time was over before all had come."""
        return bool(self.missing)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a handler waits for, checked."""

    events: tuple[str, ...]
    tasks: tuple[str, ...]

    @classmethod
    def of(cls, events: Collection[str], tasks: Collection[str]) -> Asked:
        """Raise InputError unless these are names of events and IDs of tasks, at least one of either."""
        asked = cls(
            tuple(dict.fromkeys(arguments.texts("events", events, 256))),
            tuple(dict.fromkeys(arguments.texts("tasks", tasks, 256))),
        )
        if not asked.events and not asked.tasks:
            raise InputError("name the events or tasks to wait for")
        return asked

    def rows(self, seq: int) -> list[dict[str, Any]]:
        """Return the rows of record_waits.sql."""
        return [
            *({"seq": seq, "kind": "event", "key": name} for name in self.events),
            *({"seq": seq, "kind": "task", "key": id} for id in self.tasks),
        ]


@dataclass(frozen=True, slots=True)
class Found:
    """What is there of what was asked for, as of one moment, as JSON text to be saved."""

    text: str
    is_whole: bool


def run(claim: Claim, name: str, asked: Asked, timeout_seconds: float | None, saved: Saved | None,
        place: int) -> Any:
    """Return what a wait has brought, or suspend. ``saved`` is its checkpoint, a marker if it has only begun."""
    if saved is not None and saved.kind != MARKER:
        return claim._replayed(saved, KIND)
    marker = saved
    now_us = claim.database.clock.now_us()
    if marker is not None:
        until_us = json.loads(marker.text)["until_us"]
    else:
        until_us = None if timeout_seconds is None else now_us + round(timeout_seconds * 1e6)
    found = claim.database.look(asked)
    if not found.is_whole and (until_us is None or now_us < until_us):
        text = json.dumps({"until_us": until_us, "tasks": asked.tasks})
        begun = [claim._next_checkpoint(name, MARKER, text, place)] if marker is None else []
        claim._suspend([("record_waits", asked.rows(claim.seq)), ("record_checkpoints", begun)], until_us)
    replaced = [] if marker is None else [{"task_seq": claim.seq, "ordinal": marker.ordinal}]
    claim._save(name, KIND, found.text, place, extra=[("archive_markers", replaced)])
    return claim._restore(found.text, KIND)


def look(store: Store, asked: Asked) -> Found:
    """Read the events and tasks that are there."""
    with store.snapshot():
        events: dict[str, str] = dict(store.query("event_values", names=json.dumps(asked.events)))
        ends = store.query("task_ends", ids=json.dumps(asked.tasks)) if asked.tasks else []
    tasks = {row[0]: row[1:] for row in ends}
    missing = [*(name for name in asked.events if name not in events), *(id for id in asked.tasks if id not in tasks)]
    # Values are taken over as they are stored. In pairs: a name may begin with $, which is a tag in an object.
    tree = {
        "events": [[name, json.loads(events[name])] for name in asked.events if name in events],
        "tasks": [[id, _end(*tasks[id])] for id in asked.tasks if id in tasks],
        "missing": missing,
    }
    return Found(json.dumps(tree, ensure_ascii=True, separators=(",", ":")), not missing)


def _end(state: str, result: str | None, error: str | None) -> list[Any]:
    return [state, None if result is None else json.loads(result), error]


def waited(value: Any) -> Waited:
    """Return the record of a decoded checkpoint of a wait."""
    return Waited(
        events=dict(value["events"]),
        tasks={id: TaskEnd(*end) for id, end in value["tasks"]},
        missing=tuple(value["missing"]),
    )


def emit(tasks: Tasks, name: str, text: str) -> bool:
    """See Tasks.emit; ``text`` is the encoded value."""
    arguments.text("name", name, 256)
    try:
        return tasks.emit_text(name, text)
    except StorageError:
        # Another value stands: this was not the first. The same value may be this call's own, or not: that is told.
        found = tasks.query("event_values", names=json.dumps([name]))
        if found and found[0][1] != text:
            return False
        raise


def insert_event(store: Store, clock: Clock, name: str, text: str) -> bool:
    """Emit an event unless it stands already, within the caller's transaction."""
    if store.run("event_values", names=json.dumps([name])):
        return False
    store.run("insert_events", rows=[{"name": name, "value": text}], now_us=clock.now_us())
    return True


def event(read: Callable[..., Rows], codec: Codec, name: str, otherwise: Any) -> Any:
    """See Tasks.event."""
    arguments.text("name", name, 256)
    rows = read("event_values", names=json.dumps([name]))
    return codec.decode(rows[0][1]) if rows else otherwise
