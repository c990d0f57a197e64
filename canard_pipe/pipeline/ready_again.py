"""Making ended tasks ready again, with what of theirs is to be kept: within the caller's transaction, as the owner."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from canard_pipe.engine import mapping
from canard_pipe.engine.database import Database
from canard_pipe.engine.writer import Row
from canard_pipe.errors import InputError

FINAL = ("completed", "failed", "cancelled")
MAPS = (mapping.KIND, mapping.MARKER)


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a sample's map. ``path`` is map/key, or map/key/map/key."""

    seq: int
    parent_seq: int
    map: str
    key: str
    state: str
    id: str
    path: str


def make_ready(database: Database, rows: Sequence[Row]) -> None:
    """Make tasks ready, with their items that have failed or were cancelled; ``rows`` are those of retry_tasks.sql.

    What a handler did after a map that had failed is made anew: it did so without some of the map's results.
    """
    now_us = database.clock.now_us()
    seqs = [row["seq"] for row in rows]
    items = database.store.run("unfinished_items", seqs=json.dumps(seqs))
    every = [*rows, *({"seq": seq, "version": version, "input": None} for seq, version in items)]
    later = database.store.run("steps_after_maps", seqs=json.dumps([row["seq"] for row in every]))
    _archive(database, [(row[0], row[1], row[2], row[3]) for row in later], now_us)
    database.store.run("retry_tasks", rows=every, now_us=now_us)


def archive_from(database: Database, seqs: Collection[int], step: str) -> None:
    """Archive a step of tasks and all after it, commands and items included. Raises InputError if none has it."""
    now_us = database.clock.now_us()
    known = {row[0] for row in database.store.run("known_steps", seqs=json.dumps(list(seqs)))}
    if step not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InputError(f"no step is named {step!r}; steps so far: {names}")
    found = database.store.run("live_checkpoints", seqs=json.dumps(list(seqs)))
    begin = {seq: ordinal for seq, ordinal, name, _ in found if name == step}
    maps = [
        (seq, name) for seq, ordinal, name, kind in found if kind in MAPS and ordinal >= begin.get(seq, ordinal + 1)
    ]
    archive = [{"seq": seq, "from_step": step} for seq in seqs]
    database.store.run("archive_from_step", rows=archive, now_us=now_us)
    mapping.archive(database.store, maps, now_us)


def make_item_ready(database: Database, root_seq: int, asked: str, from_step: str | None) -> None:
    """Make one item ready, and the tasks that it is for: the other items of its map keep what they have.

    ``asked`` is the item's key or path. ``from_step`` is the name of its map, to make it anew as a whole, or a step
    of it. Raises InputError for an item that is not there, is not the only one, or need not run again.
    """
    now_us = database.clock.now_us()
    items = [Item(*row) for row in database.store.run("items_of_task", root_seq=root_seq)]
    item = _item(items, asked)
    possible = FINAL if from_step is not None else ("failed", "cancelled")
    if item.state not in possible:
        way_out = f"; --from {item.map} makes it anew" if item.state == "completed" else ""
        raise InputError(f"the item {item.path} is {item.state}{way_out}")
    if from_step == item.map:
        database.store.run("archive_tasks", rows=[{"seq": item.seq}], now_us=now_us)
        mapping.archive(database.store, [(each.parent_seq, each.map) for each in items if each.parent_seq == item.seq],
                        now_us)
    elif from_step is not None:
        archive_from(database, [item.seq], from_step)
    seqs = [item.seq, *_above(database, items, item, now_us)]
    found = database.store.run("tasks_by_seq", seqs=json.dumps(seqs))
    if any(row[2] == "running" for row in found):
        raise InputError(f"the sample of the item {item.path} is at work; ask again when it has come to its end")
    make_ready_only = [{"seq": row[0], "version": row[1], "input": None} for row in found if row[2] in FINAL]
    nested = database.store.run("unfinished_items", seqs=json.dumps([item.seq]))
    make_ready_only += [{"seq": seq, "version": version, "input": None} for seq, version in nested]
    database.store.run("retry_tasks", rows=make_ready_only, now_us=now_us)


def _above(database: Database, items: Sequence[Item], item: Item, now_us: int) -> list[int]:
    """Return the tasks that an item is for, the nearest first; what they saved after the item's map is archived."""
    by_seq = {each.seq: each for each in items}
    seqs = []
    child: Item | None = item
    while child is not None:
        saved = database.store.run("live_checkpoints", seqs=json.dumps([child.parent_seq]))
        begin = next((ordinal for _, ordinal, name, _ in saved if name == child.map), 0)
        later = [
            (seq, ordinal, name, kind) for seq, ordinal, name, kind in saved
            if ordinal > begin or (ordinal == begin and kind == mapping.KIND)
        ]
        _archive(database, later, now_us, kept=child.map)
        seqs.append(child.parent_seq)
        child = by_seq.get(child.parent_seq)
    return seqs


def _item(items: Sequence[Item], asked: str) -> Item:
    found = [item for item in items if item.path == asked] or [item for item in items if item.key == asked]
    if not found:
        some = ", ".join(item.path for item in items[:8]) or "none"
        raise InputError(f"no item is named {asked!r}; items: {some}{', …' if len(items) > 8 else ''}")
    if len(found) > 1:
        raise InputError(f"several items are named {asked!r}; name one of {', '.join(item.path for item in found[:8])}")
    return found[0]


def _archive(
    database: Database, checkpoints: Sequence[tuple[int, int, str, str]], now_us: int, kept: str | None = None
) -> None:
    """Archive checkpoints (seq, ordinal, name, kind); the items of maps among them too, but not of the map ``kept``."""
    if not checkpoints:
        return
    rows = [{"task_seq": seq, "ordinal": ordinal, "step": name} for seq, ordinal, name, _ in checkpoints]
    database.store.run("archive_checkpoints", rows=rows, now_us=now_us)
    maps = [(seq, name) for seq, _, name, kind in checkpoints if kind in MAPS and name != kept]
    mapping.archive(database.store, maps, now_us)
