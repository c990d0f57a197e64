"""Owning a state for others: nothing of a pipeline runs here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from canard_pipe.errors import StorageError
from canard_pipe.pipeline.run import open_state

POLL_SECONDS = 0.5


def serve_state(
    state: Path, launch: Path, *, uri: str | None, token: str | None, told: Callable[[str], None]
) -> None:
    """Own the state and answer others until SIGINT or SIGTERM. Call in the main thread.

    Raises StateHeld, StorageError (also when the upkeep of the state ends by an error), ExtensionError.
    """
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with open_state(state, launch) as database:
            where = database.serve(uri, token)
            database.coordinator.start(poll_seconds=POLL_SECONDS)
            told(f"serving {state} at {where}; the token is in {state / 'owner.json'}")
            while not over.wait(POLL_SECONDS):
                status = database.coordinator.status()
                if status.state == "broken":
                    raise StorageError(f"the state can be served no more: {status.error}", operation="serve")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
