"""Owning a state for others: nothing of a pipeline runs here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, StorageError
from canard_pipe.pipeline import cohorts, requests, snapshot
from canard_pipe.pipeline.opening import open_state

POLL_SECONDS = 0.5
SNAPSHOT_SECONDS = 2.0


def serve_state(
    state: Path, launch: Path, *, uri: str | None, token: str | None, told: Callable[[str], None]
) -> None:
    """Own the state and answer others until SIGINT or SIGTERM. Call in the main thread.

    Requests (cancel, retry, backup) are carried out for the last run, whose samples the workers take; status.json is
    written as a run does. Raises StateHeld, StorageError (also when the upkeep of the state ends by an error),
    ExtensionError.
    """
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with open_state(state, launch) as database:
            requests.refuse_left_over(database)
            where = database.serve(uri, token, farewell=True)
            database.coordinator.start(poll_seconds=POLL_SECONDS)
            told(f"serving {state} at {where}; the token is in {state / 'owner.json'}")
            _answer(database, state, over, told)
            _publish(database, state, told, finished=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answer(database: Database, state: Path, over: threading.Event, told: Callable[[str], None]) -> None:
    clock = database.clock
    next_snapshot = clock.monotonic()
    while not over.is_set():
        status = database.coordinator.status()
        if status.state == "broken":
            raise StorageError(f"the state can be served no more: {status.error}", operation="serve")
        try:
            for text in requests.answer_open(database, _last_run(database)[1], lambda _ids: None):
                told(text)
        except CanardError as error:  # asked again at the next look
            told(f"warning: requests: {error}")
        if clock.monotonic() >= next_snapshot:
            next_snapshot = clock.monotonic() + SNAPSHOT_SECONDS
            _publish(database, state, told, finished=False)
        over.wait(POLL_SECONDS)


def _last_run(database: Database) -> tuple[str, str]:
    """Return id and pipeline of the last run; empty texts if there was none."""
    rows = database.query("latest_run")
    return (str(rows[0][0]), str(rows[0][1])) if rows else ("", "")


def _publish(database: Database, state: Path, told: Callable[[str], None], *, finished: bool) -> None:
    try:
        run_id, pipeline = _last_run(database)
        snapshot.write(state / "status.json", snapshot.snapshot(
            pipeline=pipeline, run_id=run_id, now_us=database.clock.now_us(),
            states=cohorts.sample_states(database, pipeline), running=[], finished=finished,
        ))
    except (CanardError, OSError) as error:  # others ask the server; who cannot, sees the last one
        told(f"warning: status.json: {error}")
