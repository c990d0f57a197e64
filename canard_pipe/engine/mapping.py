"""Maps: a task for each of many items, made in one transaction, awaited together by their parent (L9).

An item's task is a task like any other. What makes it an item is its row in ``children``: the map it belongs to, in
which parent. The parent suspends in the transaction that makes the items and wakes when none of them can move any more
(wakeable_tasks.sql), so nothing is lost between the two, and nothing but the database remembers that it waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import arguments
from canard_pipe.engine.grants import Saved
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.values import Codec
from canard_pipe.errors import InputError, ItemFailure, MapFailed, ReplayError, SpawnConflict, StorageError

if TYPE_CHECKING:
    from canard_pipe.engine.claim import Claim
    from canard_pipe.engine.lease import Extra

KIND, MARKER = "map", "mapping"  # kinds of checkpoints: what a map has brought, and that one has begun
MARK = "//"
DEEPEST = 2
LONGEST_ID = 256
LONGEST_TEXT_KEY = 64  # of an item that is its own key

Key = Callable[[Any], str | int]


@dataclass(frozen=True, slots=True)
class Known:
    """An item that a map has made before. ``archived``: in an earlier making of the map, which holds no more."""

    key: str
    id: str
    seq: int
    state: str
    result: str | None
    error: str | None
    archived: bool

    @property
    def ended(self) -> bool:
        """Whether it can move no more by itself."""
        return self.state in ("completed", "failed", "cancelled")


def item_id(parent: str, name: str, key: str) -> str:
    """Return the id of an item's task: the parent's, then the map and the key. No two items have the same."""
    return f"{parent}{MARK}{_spelled(name)}/{_spelled(key)}"


def path_of(id: str) -> str:
    """Return where an item is in its root, for people: map/key, or map/key/map/key; empty for a root."""
    parts = id.split(MARK)[1:]
    return "/".join(part.replace("%2F", "/").replace("%25", "%") for part in parts)


def root_of(id: str) -> str:
    """Return the id of the task whose item, or item's item, has this id; another id is its own root."""
    return id.partition(MARK)[0]


def keys_of(items: Sequence[Any], key: Key | None, name: str) -> list[str]:
    """Return the key of each item. Raises InputError for what is no key, and for two items with one."""
    keys = [_key(position, item, key, name) for position, item in enumerate(items)]
    seen: dict[str, int] = {}
    for position, each in enumerate(keys):
        before = seen.setdefault(each, position)
        if before != position:
            raise InputError(
                f"items {before + 1} and {position + 1} of {name!r} have the same key {each!r}; "
                "give key= a function that tells them apart"
            )
    return keys


def run(
    claim: Claim, name: str, fn: Any, items: Iterable[Any], key: Key | None, saved: Saved | None, place: int
) -> list[Any]:
    """Return the results of a map, or suspend until its items have ended; see Claim.map.

    ``saved`` is its checkpoint, a marker if it has only begun. Where files that the results name are gone, the items
    that they are of run once more, with what they have saved.
    """
    lost: list[int] = []
    extra: Extra = ()
    if saved is not None and saved.kind != MARKER:
        results = claim._replayed(saved, KIND)
        lost = gone(claim.database.codec, saved.text)
        if not lost:
            return list(results)
        extra = claim._archived_from(saved, f"a file of item {lost[0] + 1}")
        saved = None
    items = _listed(items, name)
    keys = keys_of(items, key, name)
    every = [Known(*row) for row in claim.database.query("map_items", parent_seq=claim.seq, map=name)]
    known = [item for item in every if not item.archived]
    if known and [item.key for item in known] != keys:
        raise ReplayError(
            claim.id, name, expected=f"the items {_some([item.key for item in known])}", actual=_some(keys),
            way_out="name the items in the same way each time, or retry from this map on",
        )
    wanted = range(len(items)) if not known else lost
    if wanted:
        rows = _rows(claim, name, fn, items, keys, {item.key: item for item in every})
        chosen = [rows[position] for position in wanted]
        new = [row for row in chosen if row["seq"] is None]
        extra = [*extra, ("spawn_items", new), ("revive_items", [row for row in chosen if row["seq"] is not None])]
        try:
            _suspend(claim, name, saved, place, extra)
        except StorageError as error:
            _refuse_foreign(claim, name, new, error)
            raise
    if any(not item.ended for item in known):
        _suspend(claim, name, saved, place, extra)
    return _results(claim, name, fn, saved, place, known, extra)


def gone(codec: Codec, text: str) -> list[int]:
    """Return the positions of a saved map's results whose files are gone or have changed."""
    return [
        position for position, tree in enumerate(json.loads(text))
        if not all(file.unchanged() for file in codec.files(json.dumps(tree)))
    ]


def archive(store: Store, maps: Sequence[tuple[int, str]], now_us: int) -> None:
    """Make the items of maps (pairs of the parent's seq and the name) and all that they have saved history.

    Within the caller's transaction. A map that asks for them again runs them from their beginning.
    """
    for statement, rows in archived(store.run, maps):
        store.run(statement, rows=rows, now_us=now_us)


def archived(read: Callable[..., Rows], maps: Sequence[tuple[int, str]]) -> Extra:
    """Return the statements of :func:`archive` with their rows."""
    if not maps:
        return ()
    pairs = json.dumps([{"seq": seq, "map": name} for seq, name in maps])
    rows = [{"seq": row[0]} for row in read("items_below", maps=pairs)]
    return [("archive_tasks", rows), ("archive_items", rows)] if rows else ()


def _listed(items: Any, name: str) -> list[Any]:
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InputError(f"the items of {name!r} must be a list, not {items!r}")
    return list(items)


def _results(
    claim: Claim, name: str, fn: Any, marker: Saved | None, place: int, known: Sequence[Known], extra: Extra
) -> list[Any]:
    bad = [item for item in known if item.state != "completed"]
    results = {
        item.key: claim._restore(item.result or "null", f"reading the result of item {item.key!r}")
        for item in known if item.state == "completed"
    }
    if bad:
        causes: dict[int, str] = dict(claim.database.query("last_causes", seqs=json.dumps([item.seq for item in bad])))
        raise MapFailed(name, [_failure(item, causes.get(item.seq)) for item in bad], results, len(known))
    text = claim.database.codec.encode(list(results.values()), with_files=True)
    replaced = [] if marker is None else [{"task_seq": claim.seq, "ordinal": marker.ordinal}]
    extra = [*extra, ("archive_markers", replaced)]
    claim._save(name, KIND, text, place, extra, code=claim.code_of(fn) if callable(fn) else None)
    return list(results.values())


def _failure(item: Known, cause: str | None) -> ItemFailure:
    told = cause if item.state == "failed" else None
    return ItemFailure(item.key, item.id, item.state, item.error, json.loads(told) if told else {})


def _suspend(claim: Claim, name: str, marker: Saved | None, place: int, extra: Extra) -> None:
    begun = [] if marker is not None else [claim._next_checkpoint(name, MARKER, "null", place)]
    waits = [{"seq": claim.seq, "kind": "map", "key": name}]
    claim._suspend([*extra, ("record_checkpoints", begun), ("record_waits", waits)], None)


def _rows(
    claim: Claim, name: str, fn: Any, items: Sequence[Any], keys: Sequence[str], known: dict[str, Known]
) -> list[dict[str, Any]]:
    """Return the rows of spawn_items.sql, everything checked before anything is sent."""
    depth, root = _depth(claim)
    if depth == DEEPEST:
        raise InputError(
            f"{name!r} is a map in an item of an item: maps can be nested once; "
            "let the outer map have more items, or use a loop of steps"
        )
    task = claim.item_task(fn, name)
    common = {"parent_seq": claim.seq, "root_seq": root, "depth": depth + 1, "map": name, "name": task}
    rows = []
    for position, (item, key) in enumerate(zip(items, keys, strict=True)):
        id = item_id(claim.id, name, key)
        if len(id) > LONGEST_ID:
            raise InputError(
                f"the key of item {position + 1} of {name!r} is too long: {key!r} makes an ID of {len(id)} characters, "
                f"{LONGEST_ID} are possible; give key= a function that returns shorter ones"
            )
        given = claim.database.codec.encode(claim.item_input(fn, name, key, item))
        seq = known[key].seq if key in known else None
        rows.append(common | {"position": position, "seq": seq, "id": id, "key": key, "input": given})
    return rows


def _refuse_foreign(claim: Claim, name: str, rows: Sequence[dict[str, Any]], error: StorageError) -> None:
    """Raise SpawnConflict if that was it: a task that is no item of this map has the ID of one."""
    own = {row[1] for row in claim.database.query("map_items", parent_seq=claim.seq, map=name)}
    for found in claim.database.query("known_tasks", ids=json.dumps([row["id"] for row in rows])):
        if found[0] not in own:
            raise SpawnConflict(found[0], ["parent"]) from error


def _depth(claim: Claim) -> tuple[int, int]:
    found = claim.database.query("item_depth", task_seq=claim.seq) if MARK in claim.id else []
    return (int(found[0][0]), int(found[0][1])) if found else (0, claim.seq)


def _key(position: int, item: Any, key: Key | None, name: str) -> str:
    if key is None:
        return item if isinstance(item, str) and 1 <= len(item) <= LONGEST_TEXT_KEY else str(position)
    given = key(item)
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise InputError(f"key= must return text or a whole number; for item {position + 1} of {name!r}: {given!r}")
    return arguments.text(f"the key of item {position + 1} of {name!r}", str(given), LONGEST_ID)


def _spelled(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _some(keys: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(keys[:most])
    return f"{shown}, … ({len(keys)})" if len(keys) > most else shown or "none"
