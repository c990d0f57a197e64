"""Requests of other processes to the living run: rows in ``requests``, answered by the run's maintenance."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from canard_pipe.engine import arguments
from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, InputError
from canard_pipe.pipeline import retrying
from canard_pipe.pipeline.naming import some
from canard_pipe.pipeline.overrides import parse_override

LONGEST_KEY = 256


def refuse_left_over(database: Database) -> None:
    """Answer the requests that a run which is dead by now was asked and did not answer: they are not carried out."""
    answer = json.dumps({"ok": False, "message": "the run that was asked has ended"})
    rows = [{"request_id": row[0], "answer": answer} for row in database.query("open_requests")]
    if rows:
        database.write("answer_requests", rows)


def answer_open(database: Database, pipeline: str, join: Callable[[Collection[str]], None]) -> list[str]:
    """Answer every open request; return what was done, a sentence each. Level-triggered: safe to call at any time.

    ``join`` is told the ids of tasks that are to run again.
    """
    said = []
    for id, kind, given in database.query("open_requests"):
        try:
            answer = {"ok": True, "message": _do(database, pipeline, kind, json.loads(given), join)}
        except (CanardError, ValueError) as error:
            answer = {"ok": False, "message": str(error)}
        database.write("answer_requests", [{"request_id": id, "answer": json.dumps(answer)}])
        said.append(f"{kind} asked from another terminal: {answer['message']}")
    return said


def _do(database: Database, pipeline: str, kind: str, given: Any, join: Callable[[Collection[str]], None]) -> str:
    # The table is open to everybody's SQL: what is written there wrongly is answered, and does not end the thread.
    if not isinstance(given, dict):
        raise InputError("the arguments of a request are a JSON object")
    if kind == "backup":
        return backup(database, given.get("path"))
    keys = arguments.texts("keys", given.get("keys") or [], LONGEST_KEY)
    if kind == "cancel":
        chosen = retrying.cancel(database, pipeline, keys, every=bool(given.get("all")))
    elif kind == "retry":
        chosen = retrying.retry(
            database,
            pipeline,
            keys,
            failed=bool(given.get("failed")),
            from_step=given.get("from_step"),
            item=given.get("item"),
            override=parse_override(given.get("memory"), given.get("time")),
        )
        join([row.task_id for row in chosen.rows if row.task_id is not None])
    else:
        raise InputError(f"the run does not know the request {kind!r}")
    return describe(kind, chosen)


def backup(database: Database, path: object) -> str:
    """Back the state up to an absolute path and say so. Raises InputError, StorageError."""
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise InputError("a backup needs the absolute path of a new file")
    database.backup(path)
    return f"the state as it is now is in {path}"


def describe(kind: str, chosen: retrying.Chosen) -> str:
    """Say what a retry or cancel has done."""
    done = {"cancel": "cancelled", "retry": "will run again"}[kind]
    names = some([row.key for row in chosen.rows], most=20)
    parts = [f"{done}: {names}"] if names else [f"nothing to {kind}"]
    return "; ".join([*parts, *(f"not possible: {why}" for why in chosen.refused)])
