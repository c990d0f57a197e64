"""Requests of other processes to the living run: rows in ``requests``, answered by the run's maintenance."""

from __future__ import annotations

import json
from typing import Any

from canard_pipe.engine import arguments
from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, InputError
from canard_pipe.pipeline import retrying

LONGEST_KEY = 256


def answer_open(database: Database, pipeline: str) -> list[str]:
    """Answer every open request; return what was done, a sentence each. Level-triggered: safe to call at any time."""
    said = []
    for id, kind, given in database.query("open_requests"):
        try:
            answer = {"ok": True, "message": _do(database, pipeline, kind, json.loads(given))}
        except (CanardError, ValueError) as error:
            answer = {"ok": False, "message": str(error)}
        database.write("answer_requests", [{"request_id": id, "answer": json.dumps(answer)}])
        said.append(f"{kind} asked from another terminal: {answer['message']}")
    return said


def _do(database: Database, pipeline: str, kind: str, given: Any) -> str:
    # The table is open to everybody's SQL: what is written there wrongly is answered, and does not end the thread.
    if not isinstance(given, dict):
        raise InputError("the arguments of a request are a JSON object")
    keys = arguments.texts("keys", given.get("keys") or [], LONGEST_KEY)
    if kind == "cancel":
        chosen = retrying.cancel(database, pipeline, keys, every=bool(given.get("all")))
    elif kind == "retry":
        chosen = retrying.retry(
            database, pipeline, keys, failed=bool(given.get("failed")), from_step=given.get("from_step")
        )
    else:
        raise InputError(f"the run does not know the request {kind!r}")
    return describe(kind, chosen)


def describe(kind: str, chosen: retrying.Chosen) -> str:
    """Say what a retry or cancel has done."""
    done = {"cancel": "cancelled", "retry": "will run again"}[kind]
    names = ", ".join(row.key for row in chosen.rows)
    parts = [f"{done}: {names}"] if names else [f"nothing to {kind}"]
    return "; ".join([*parts, *(f"not possible: {why}" for why in chosen.refused)])
