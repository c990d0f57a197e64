"""Open the state of a launch folder as its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError
from canard_pipe.pipeline import snapshot
from canard_pipe.pipeline.access import FILE, LOCK, SNAPSHOT


def open_state(state: Path, launch: Path, **options: Any) -> Database:
    """Open the state as its owner, making it if it is not there.

    Raises StateHeld after 5 s of waiting, InputError for a state that has lost its database (BUGS 22).
    """
    state.mkdir(parents=True, exist_ok=True)
    file = state / FILE
    if not file.exists() and (state / SNAPSHOT).exists():
        raise InputError(
            f"the state {state} has lost its database: there was a run here, and {file.name} is gone. Put it back, "
            f"from a backup for example, or move {state} away and begin anew: results that come out the same are "
            "taken over"
        )
    return Database(
        file,
        root=launch,
        lock=state / LOCK,
        supervised=lambda: snapshot.supervised(state / SNAPSHOT),
        **options,
    )
