"""status.json: what the run looks like, for those who cannot ask the database. Written by rename."""

from __future__ import annotations

import datetime
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from canard_pipe.engine.mapping import path_of, root_of
from canard_pipe.execution.executor import RunningCommand
from canard_pipe.pipeline.cohorts import SampleState


def snapshot(
    *,
    pipeline: str,
    run_id: str,
    now_us: int,
    states: Sequence[SampleState],
    running: Sequence[dict[str, Any]],
    finished: bool,
) -> dict[str, Any]:
    """Return the state as a JSON object; ``running`` describes the commands that run now."""
    steps = {root_of(command["task_id"]): path_of(command["task_id"]) or command["step"] for command in running}
    keys = {row.task_id: row.key for row in states}
    return {
        "written_at": datetime.datetime.fromtimestamp(now_us / 1e6, datetime.UTC).isoformat(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pipeline": pipeline,
        "run_id": run_id,
        "counts": dict(Counter(row.state for row in states if row.kind == "sample")),
        "samples": [
            {
                "kind": row.kind,
                "sample": row.key,
                "state": row.state,
                "step": steps.get(row.task_id or ""),
                "error": row.skipped_because or row.error,
                "blocked_by": row.blocked_by,
            }
            for row in states
        ],
        "running": [
            command | {"sample": keys.get(root_of(command["task_id"])), "item": path_of(command["task_id"]) or None}
            for command in running
        ],
        "finished": finished,
    }


def described(commands: Iterable[RunningCommand]) -> list[dict[str, Any]]:
    """Describe the commands that wait and run now, as ``snapshot`` takes them."""
    return [
        {
            "task_id": command.task_id,
            "step": command.step,
            "command": command.command,
            "state": command.state,
            "started_at": command.since_us,
            "pids": list(command.pids),
            "folder": None if command.folder is None else str(command.folder),
            "memory_bytes": command.memory_bytes,
            "job_id": command.job_id,
        }
        for command in commands
    ]


def write(path: Path, state: dict[str, Any]) -> None:
    """Replace the file at ``path`` by ``state``: readers see the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
    temporary.replace(path)


def supervised(path: Path) -> list[str]:
    """Return the ids of the tasks whose commands ran or waited when the last snapshot was taken; none if unreadable."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [str(command["task_id"]) for command in found["running"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
