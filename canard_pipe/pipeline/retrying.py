"""Retry and cancel by sample, as people ask for them: on the living run or with the file in hand."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError
from canard_pipe.pipeline import ready_again
from canard_pipe.pipeline.cohorts import SampleState, sample_states
from canard_pipe.pipeline.overrides import Override, keep

RETRYABLE = ("failed", "cancelled")
REMAKEABLE = (*RETRYABLE, "done", "skipped", "changed")  # from a step on
ENDED_OR_WAITING = (*REMAKEABLE, "waiting", "running", "queued")  # for its items: they have states of their own
CANCELLABLE = ("waiting", "running", "queued", "blocked")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows that a request is about, and what to say of those that it is not possible for."""

    rows: tuple[SampleState, ...]
    refused: tuple[str, ...]


def choose(
    states: Sequence[SampleState], keys: Collection[str], *, every: bool, possible: Collection[str], verb: str
) -> Chosen:
    """Return the rows named by ``keys``, or every row whose state allows it. Raises InputError for unknown names."""
    by_key: dict[str, list[SampleState]] = {}
    for row in states:
        by_key.setdefault(row.key, []).append(row)
    unknown = [key for key in keys if key not in by_key]
    if unknown:
        raise InputError(f"no sample, once or cohort function is named {', '.join(map(repr, unknown))}")
    if not keys and not every:
        raise InputError(f"name the samples to {verb}")
    named = [row for key in dict.fromkeys(keys) for row in by_key[key]] if keys else list(states)
    rows, refused = [], []
    for row in named:
        if row.state in possible and row.task_id is not None:
            rows.append(row)
        elif keys:
            refused.append(f"{row.key} is {row.state}")
    return Chosen(tuple(rows), tuple(refused))


def choose_for_retry(
    states: Sequence[SampleState], keys: Collection[str], *, failed: bool, from_step: str | None
) -> Chosen:
    """Return the rows that a retry is about: those named, or with ``failed`` every failed one.

    Raises InputError for unknown names, and if none of those named can be retried: nothing would happen.
    """
    possible = ("failed",) if failed and not keys else retryable(from_step)
    chosen = choose(states, keys, every=failed, possible=possible, verb="retry")
    if keys and not chosen.rows:
        made = any(row.state in REMAKEABLE for row in states if row.key in keys)
        way_out = "; --from STEP makes what is done anew from a step on" if made and not from_step else ""
        raise InputError(f"nothing to retry: {', '.join(chosen.refused)}{way_out}")
    return chosen


def retry(
    database: Database,
    pipeline: str,
    keys: Collection[str],
    *,
    failed: bool = False,
    from_step: str | None = None,
    item: str | None = None,
    override: Override | None = None,
) -> Chosen:
    """Make failed and cancelled tasks ready again with failures 0, in one transaction.

    Saved steps are kept, or with ``from_step`` only those before it; the rest is archived, not deleted. Items of maps
    that failed or were cancelled are made ready too, the others are kept. ``failed`` takes every failed row. ``item``
    names the only item to run again, of one sample; ``from_step`` is its map then, or one of its steps.
    ``override``: what the commands of the tasks and of their items ask for at least from now on.
    Raises InputError for unknown names, steps and items, and if no named one can be retried.
    """
    if item is not None:
        return _retry_item(database, sample_states(database, pipeline), keys, item, from_step, override)
    chosen = choose_for_retry(sample_states(database, pipeline), keys, failed=failed, from_step=from_step)

    def act() -> None:
        ids = [row.task_id for row in chosen.rows]
        tasks = database.store.run("task_versions", ids=json.dumps(ids))
        if from_step is not None:
            ready_again.archive_from(database, [seq for _, seq, *_ in tasks], from_step)
            tasks = database.store.run("task_versions", ids=json.dumps(ids))
        ready_again.make_ready(database, [{"seq": row[1], "version": row[2], "input": None} for row in tasks])
        keep(database, [seq for _, seq, *_ in tasks], override)

    if chosen.rows:
        database.writer.transact(act)
    return chosen


def _retry_item(
    database: Database,
    states: Sequence[SampleState],
    keys: Collection[str],
    item: str,
    from_step: str | None,
    override: Override | None,
) -> Chosen:
    chosen = choose(states, keys, every=False, possible=ENDED_OR_WAITING, verb="retry")
    if len(keys) != 1 or len(chosen.rows) + len(chosen.refused) != 1:
        raise InputError("--item is for one sample: name it, and only it")
    if chosen.refused:
        raise InputError(f"nothing to retry: {chosen.refused[0]}")
    (row,) = chosen.rows
    seq = row.task_seq
    if seq is None:
        raise InputError(f"{row.key} has not begun")

    def act() -> None:
        ready_again.make_item_ready(database, seq, item, from_step)
        keep(database, [seq], override)

    database.writer.transact(act)
    return chosen


def retryable(from_step: str | None) -> tuple[str, ...]:
    """Return the states that a retry is possible in: what is done is made anew only from a named step on."""
    return RETRYABLE if from_step is None else REMAKEABLE


def cancel(database: Database, pipeline: str, keys: Collection[str], *, every: bool = False) -> Chosen:
    """Cancel unfinished tasks; their handlers in this process learn at once, and their commands are ended."""
    chosen = choose(sample_states(database, pipeline), keys, every=every, possible=CANCELLABLE, verb="cancel")
    database.cancel_many([row.task_id for row in chosen.rows if row.task_id is not None])
    return chosen

