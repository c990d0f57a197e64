"""Items of maps, as the reports show them: in one row with their sample, never as rows of their own."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from canard_pipe.pipeline.access import View
from canard_pipe.report.wording import instant_text, states_in_words, visible

GOOD = ("done", "skipped")


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item. ``path`` is map/key, for an item of an item's map map/key/map/key; ``depth`` is 1 or 2."""

    map: str
    key: str
    path: str
    state: str
    attempt: int
    failures: int
    max_failures: int
    error: str | None
    task_id: str
    seq: int
    depth: int
    available_us: int | None
    updated_us: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the item for machines."""
        return {
            "item": self.key, "map": self.map, "path": self.path, "state": self.state, "attempt": self.attempt,
            "failures": self.failures, "max_failures": self.max_failures, "error": self.error,
            "task_id": self.task_id, "updated_at": instant_text(self.updated_us),
        }


def read_items(view: View, seqs: Collection[int]) -> dict[int, tuple[ItemRow, ...]]:
    """Return the items of tasks by the ``seq`` of the task, in their order, those of items' maps last."""
    found: dict[int, list[ItemRow]] = {}
    for root_seq, *row in view.query("report_items", seqs=json.dumps(list(seqs))):
        found.setdefault(root_seq, []).append(ItemRow(*row))
    return {seq: tuple(items) for seq, items in found.items()}


def by_map(items: Sequence[ItemRow]) -> dict[str, list[ItemRow]]:
    """Return the items of a sample's own maps, by the name of the map."""
    found: dict[str, list[ItemRow]] = {}
    for item in items:
        if item.depth == 1:
            found.setdefault(item.map, []).append(item)
    return found


def progress(items: Sequence[ItemRow]) -> str:
    """Return how many of a map's items are done: ``3/8``."""
    return f"{sum(item.state in GOOD for item in items)}/{len(items)}"


def in_words(name: str, items: Sequence[ItemRow]) -> str:
    """Return the states of a map's items: ``align: 8 items: 1 failed, 3 done``."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.state] = counts.get(item.state, 0) + 1
    return f"{visible(name)}: {len(items)} item{'s' * (len(items) != 1)}: {states_in_words(counts)}"


def telling(items: Sequence[ItemRow], most: int) -> list[ItemRow]:
    """Return the items that say why a sample is where it is: failed ones, and those at work or to be tried again."""
    failed = [item for item in items if item.state == "failed"]
    others = [
        item for item in items if item.state in ("running", "queued") or (item.state == "waiting" and item.failures)
    ]
    return failed[:most] + others[:most]
