"""Requests of other processes to the living run: rows in ``requests``, answered by the run's maintenance."""

from __future__ import annotations

import json
import logging
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, InputError
from canard_pipe.pipeline import retrying

log = logging.getLogger(__name__)


def answer_open(database: Database, pipeline: str) -> list[str]:
    """Answer every open request; return what was done, a sentence each. Level-triggered: safe to call at any time."""
    said = []
    for id, kind, arguments in database.query("open_requests"):
        try:
            answer = {"ok": True, "message": _do(database, pipeline, kind, json.loads(arguments))}
        except (CanardError, ValueError) as error:
            answer = {"ok": False, "message": str(error)}
        database.write("answer_requests", [{"request_id": id, "answer": json.dumps(answer)}])
        said.append(f"{kind} asked from another terminal: {answer['message']}")
    return said


def _do(database: Database, pipeline: str, kind: str, given: dict[str, Any]) -> str:
    keys = given.get("keys") or []
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
