"""Change a state that no run owns: for the moment, as its owner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canard_pipe.errors import InputError
from canard_pipe.pipeline import cleaning, requests, retrying
from canard_pipe.pipeline.opening import open_state
from canard_pipe.pipeline.scheduling import see_jobs_out
from canard_pipe.pipeline.stored_run import stored_slurm


def cancel_stored(state: Path, launch: Path, keys: Sequence[str], *, every: bool) -> str:
    """Cancel unfinished samples of the last run and say what was done. Raises InputError for unknown names."""
    with open_state(state, launch) as database:
        runs = database.query("latest_run")
        if not runs:
            raise InputError(f"the state {state} knows no run yet")
        chosen = retrying.cancel(database, runs[0][1], keys, every=every)
        said = [requests.describe("cancel", chosen)]
        see_jobs_out(database, stored_slurm(database), environ=os.environ, note=said.append)
    return "; ".join(said)


def backup_stored(state: Path, launch: Path, path: Path) -> str:
    """Back the state up to a new file and say so. Raises InputError if it exists, StateHeld."""
    with open_state(state, launch) as database:
        return requests.backup(database, str(path))


def clean_stored(state: Path, launch: Path, *, older_than_us: int) -> tuple[list[cleaning.Removable], int]:
    """Remove what may go (see cleaning.py); return it, and how many bytes were freed. Raises StateHeld."""
    with open_state(state, launch) as database:
        where = cleaning.places(database, launch, state)
        found = cleaning.everything(database, where, older_than_us=older_than_us)
        return found, cleaning.remove(found, where.works)


def write_sql(state: Path, launch: Path, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Execute one SQL statement that may change something; return names of columns and rows. Raises StateHeld."""
    with open_state(state, launch) as database:
        return database.store.sql(text)
