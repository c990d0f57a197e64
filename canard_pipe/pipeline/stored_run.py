"""What a run is asked to do, and how that is stored, so that ``retry`` can ask for the same once more."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.writer import Row
from canard_pipe.errors import InputError
from canard_pipe.pipeline.prepare import Prepared
from canard_pipe.pipeline.sheet import SheetOptions


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is asked to do. Folders are absolute; ``None`` stands for what the machine has.

    ``only``: names of samples, or patterns, to which the run is limited; () for all.
    ``limits`` are those given at this run, which come before the pipeline's; ``slurm`` holds the settings of that
    table, checked. ``launch``: stored paths below it are relative to it. ``folder``: where relative paths in
    ``params`` start.
    """

    pipeline_file: Path
    sheet_file: Path
    params: tuple[str, ...]
    launch: Path
    folder: Path
    state: Path
    work: Path
    results: Path
    sheet: SheetOptions = field(default_factory=SheetOptions)
    cpus: float | None = None
    memory_bytes: int | None = None
    slots: int | None = None
    only: tuple[str, ...] = ()
    drop_intermediates: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    executor: str = "local"
    slurm: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    rerun_changed: bool = False
    accept_changed: bool = False
    suspend_always: bool = False


_PATHS = ("folder", "work", "results")
_PLAIN = ("cpus", "memory_bytes", "slots", "drop_intermediates", "limits", "executor", "slurm", "suspend_always")
_OF_SHEET = (
    "delimiter", "encoding", "format", "pad", "twins", "map_names", "expand", "checksums", "compare_content",
    "skip_bad_rows",
)  # fmt: skip
_LISTS_OF_SHEET, _PATHS_OF_SHEET = ("columns", "on"), ("units", "folder")


def run_row(database: Database, run_id: str, options: RunOptions, prepared: Prepared) -> Row:
    """Return the row of insert_run.sql."""
    codec = database.codec
    settings = {name: json.loads(codec.encode(getattr(options, name))) for name in _PATHS}
    settings |= {name: getattr(options, name) for name in _PLAIN}
    settings["sheet"] = {name: getattr(options.sheet, name) for name in (*_OF_SHEET, *_LISTS_OF_SHEET)}
    settings["sheet"] |= {name: json.loads(codec.encode(getattr(options.sheet, name))) for name in _PATHS_OF_SHEET}
    runtime = database.runtime()
    return {
        "run_id": run_id,
        "pipeline": prepared.loaded.pipeline.name,
        "pipeline_file": codec.encode(options.pipeline_file.absolute()),
        "pipeline_digest": prepared.loaded.digest,
        "sheet_file": codec.encode(options.sheet_file.absolute()),
        "sheet_text": prepared.sheet.text,
        "params": json.dumps(list(options.params)),
        "settings": json.dumps(settings),
        "versions": json.dumps(runtime.as_dict()),
        "host": runtime.host,
        "pid": os.getpid(),
    }


def stored_options(database: Tasks, state: Path) -> RunOptions:
    """Return the options of the latest run. Raises InputError if there was none."""
    rows = database.query("latest_run")
    if not rows:
        raise InputError(f"the state {state} knows no run yet: use canard-pipe run PIPELINE SHEET first")
    _, _, pipeline_file, sheet_file, params, settings = rows[0]
    given: dict[str, Any] = json.loads(settings)
    of_sheet: dict[str, Any] = given["sheet"]
    of_sheet |= {name: of_sheet[name] and tuple(of_sheet[name]) for name in _LISTS_OF_SHEET}
    of_sheet |= {name: database.codec.decode(json.dumps(of_sheet[name])) for name in _PATHS_OF_SHEET}
    return RunOptions(
        pipeline_file=database.codec.decode(pipeline_file),
        sheet_file=database.codec.decode(sheet_file),
        params=tuple(json.loads(params)),
        launch=database.root,
        state=state,
        sheet=SheetOptions(**of_sheet | {"on": of_sheet["on"] or ()}),
        **{name: database.codec.decode(json.dumps(given[name])) for name in _PATHS},
        **{name: given[name] for name in _PLAIN},
    )


def stored_slurm(database: Tasks) -> dict[str, Any]:
    """Return the Slurm settings of the latest run; none if it had none, or there was no run."""
    rows = database.query("latest_run")
    return dict(json.loads(rows[0][5]).get("slurm") or {}) if rows else {}
