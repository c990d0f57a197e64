"""All that a report says, read from the state at once, so that the state is not held while the page is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import View
from canard_pipe.report.page.failures import read_causes
from canard_pipe.report.page.tries import Tried, read_tries
from canard_pipe.report.rows import RunRow, Status, read_runs, read_status
from canard_pipe.report.selection import Selection

MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Material:
    """``runs``: those of the pipeline, the latest first. ``versions`` and ``digest`` are of the latest.

    ``causes`` and ``published`` (files, bytes) are by the ``seq`` of a row's task; ``root`` is the launch folder.
    """

    status: Status
    runs: tuple[RunRow, ...]
    versions: Mapping[str, Any]
    digest: str
    tries: tuple[Tried, ...]
    causes: Mapping[int, tuple[dict[str, Any], str]]
    published: Mapping[int, tuple[int, int]]
    root: Path
    live: bool


def read_material(view: View, pipeline: str | None = None) -> Material:
    """Read what a report needs of the pipeline that was run last, or of ``pipeline``.

    Raises InputError where nothing was run, StateHeld and StorageError where the state cannot be asked.
    """
    runs = read_runs(view)  # raises where there is only a snapshot, which does not hold enough
    status = read_status(view, Selection(limit=MOST_ROWS), pipeline=pipeline)
    if status.run is None:
        raise InputError("nothing was run here yet: start with `canard-pipe run PIPELINE SHEET`")
    name = status.pipeline
    ((versions, digest),) = view.query("report_versions", run_id=status.run.run_id)
    return Material(
        status=status,
        runs=tuple(run for run in runs if run.pipeline == name),
        versions=json.loads(versions),
        digest=digest,
        tries=tuple(read_tries(view, name)),
        causes=read_causes(view, name),
        published={seq: (files, size) for seq, files, size in view.query("report_published", pipeline=name)},
        root=view.root,
        live=view.source == "live",
    )
