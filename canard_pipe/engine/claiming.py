"""Taking tasks: the candidates, the statement that claims them all, and what was granted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from canard_pipe.engine import arguments
from canard_pipe.engine.claim import Grant, Saved
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.reading_ahead import Ahead
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.transitions import ended
from canard_pipe.errors import ConflictError


@dataclass(frozen=True, slots=True)
class Request:
    """Who wants how many tasks of which kind."""

    limit: int
    queue: str
    holder: str
    lease_seconds: float
    names: Collection[str] | None
    ids: Collection[str] | None
    reap_limit: int = 0
    ahead: bool = False  # may take what was read for an earlier claim

    def check(self) -> None:
        """Raise InputError for what no claim could mean."""
        arguments.whole("limit", self.limit, 0, 2**31 - 1)
        arguments.whole("reap_limit", self.reap_limit, 0, 2**31 - 1)
        arguments.text("queue", self.queue, 128)
        arguments.seconds("lease_seconds", self.lease_seconds)
        for name, given in (("names", self.names), ("ids", self.ids)):
            if given is not None:
                arguments.texts(name, given, 256)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be claimed by it."""
        return self.limit == 0 or (self.names is not None and not self.names) or (
            self.ids is not None and not self.ids
        )

    def within(self, names: Collection[str] | None, ids: Collection[str] | None) -> Request:
        """Return the request for only those of ``names`` and ``ids``, where given."""
        return replace(self, names=_both(self.names, names), ids=_both(self.ids, ids))


def grab(store: Store, clock: Clock, request: Request, ahead: Ahead, order: int) -> list[Grant]:
    """Claim what is eligible, with its saved steps, within the caller's transaction (F7, S3, S5, S7, L19).

    ``ahead`` may hold candidates; ``order`` changes whenever this process has changed the order of tasks.
    """
    now_us = clock.now_us()
    names, ids = _listed(request.names), _listed(request.ids)

    def read(most: int) -> Rows:
        return store.run("claim_candidates", queue=request.queue, most=most, now_us=now_us, names=names, ids=ids)

    found = ahead.take(request.limit, (request.queue, names, ids, order), clock, read)
    return _claim(store, now_us, request, found) if found else []


def grab_at_hand(
    store: Store, clock: Clock, request: Request, limit: int, ahead: Ahead, order: int
) -> list[Grant]:
    """As :func:`grab`, but claim only what ``ahead`` holds: ``limit`` tasks at most, or none."""
    found = ahead.at_hand(limit, (request.queue, _listed(request.names), _listed(request.ids), order), clock)
    return _claim(store, clock.now_us(), request, found) if found else []


def _claim(store: Store, now_us: int, request: Request, found: Rows) -> list[Grant]:
    inputs = _large_inputs(store, [row[0] for row in found if row[7] is None])
    tokens = [uuid.uuid4().hex for _ in found]
    rows = [
        {"seq": row[0], "version": row[1], "expired": int(row[8]), "token": token}
        for row, token in zip(found, tokens, strict=True)
    ]
    deadline_us = now_us + round(request.lease_seconds * 1e6)
    changed = store.changed(
        "claim_tasks", rows=rows, worker=request.holder, now_us=now_us, deadline_us=deadline_us
    )
    if changed != len(rows):  # another process has taken one since it was read
        raise ConflictError("a task was changed since it was read", operation="claim_tasks")
    expired = [
        ended(row[0], row[4], row[9], row[10], "expired", "worker lease expired", cause="lease")
        for row in found if row[8]
    ]
    if expired:
        store.run("record_attempts", rows=expired, now_us=now_us)
    again = [row[0] for row in found if row[4] > 0]
    saved = saved_checkpoints(store.run, again) if again else {}
    return [
        Grant(
            id=row[2], seq=row[0], name=row[3], attempt=row[4] + 1, failures=row[5] + int(row[8]),
            max_failures=row[6], token=token, worker=request.holder, started_us=now_us, deadline_us=deadline_us,
            lease_seconds=request.lease_seconds, input=row[7] or inputs[row[0]], saved=saved.get(row[0], ()),
        )
        for row, token in zip(found, tokens, strict=True)
    ]


def saved_checkpoints(read: Callable[..., Rows], seqs: Sequence[int]) -> dict[int, tuple[Saved, ...]]:
    """Return the saved checkpoints of tasks by their ``seq``, in saved order (S43)."""
    found: dict[int, list[Saved]] = {}
    for seq, ordinal, name, kind, text, place in read("saved_checkpoints", seqs=json.dumps(list(seqs))):
        found.setdefault(seq, []).append(Saved(ordinal, name, kind, text, place))
    return {seq: tuple(saved) for seq, saved in found.items()}


def _large_inputs(store: Store, seqs: Sequence[int]) -> dict[int, str]:
    return dict(store.run("task_inputs", seqs=json.dumps(seqs))) if seqs else {}


def _both(wanted: Collection[str] | None, allowed: Collection[str] | None) -> Collection[str] | None:
    if wanted is None or allowed is None:
        return allowed if wanted is None else wanted
    return set(wanted) & set(allowed)


def _listed(names: Collection[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))
