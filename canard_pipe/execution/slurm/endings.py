"""The record of a try whose job could not write one, or did not know why it ended: what Slurm says, by the run.

It stands in the folder as ``status.json`` like any other, so that replays, reports and requests for more memory or time
need not know Slurm.
"""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

from canard_pipe.execution import causes, record
from canard_pipe.execution.record import Record
from canard_pipe.execution.slurm import Seen
from canard_pipe.execution.slurm.runner import JOB
from canard_pipe.execution.slurm.script import LOG

_MEMORY_LIMIT = b"exceeded memory limit"  # slurmstepd's words, in the job's own output, where no command writes


def read(folder: Path, token: str) -> Record | None:
    """Return the record of the try with this token; None if there is none, or a broken one, or another's."""
    try:
        found = record.parse(json.loads((folder / record.FILE).read_bytes()))
    except (OSError, ValueError):
        return None
    return found if found.token == token else None


def memory_ran_out(folder: Path) -> bool:
    """Tell whether Slurm has ended the job for its memory where it does not have a state for that (no cgroups)."""
    try:
        return _MEMORY_LIMIT in (folder / LOG).read_bytes()
    except OSError:
        return False


def write(folder: Path, cause: str, text: str, *, job_id: str | None = None, seen: Seen | None = None) -> str | None:
    """Write the record of a try that ended for ``cause``; ``text`` is for people. Return why it could not be written.

    What the job itself has put down (times, memory, members) is kept.
    """
    try:
        content = _whole(folder)
    except (OSError, ValueError) as error:
        return f"{folder / JOB} cannot be read: {error}"
    own_end = content["exit_code"], content["signal"]
    content |= {
        "ended_by": "timeout" if cause == causes.TIMEOUT else "scheduler",
        "cause": cause,
        "error": text,
        "oom": cause == causes.OOM,
        "exit_code": None,
        "signal": None,
        "outputs": {},
    }
    if cause in (causes.CANCELLED, causes.NO_RECORD):
        content["exit_code"], content["signal"] = own_end
        if own_end == (None, None) and seen is not None:
            content["exit_code"] = seen.exit_code or None
    if job_id is not None:
        content["job_id"] = job_id
    if seen is not None:
        content["host"] = content["host"] if content["host"] != UNKNOWN_HOST else seen.node or UNKNOWN_HOST
        content["started_at"] = content["started_at"] or _iso(seen.start_us)
        content["ended_at"] = content["ended_at"] or _iso(seen.end_us)
    target = folder / record.FILE
    fresh = target.with_name(f"{record.FILE}.run")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except OSError as error:
        return str(error)
    return None


UNKNOWN_HOST = "unknown"


def _whole(folder: Path) -> dict[str, Any]:
    """Return the record that is there, or an empty one of this try."""
    message = json.loads((folder / JOB).read_bytes())
    try:
        found = json.loads((folder / record.FILE).read_bytes())
        record.parse(found)
        if found["token"] == message["token"]:
            return dict(found)
    except (OSError, ValueError, KeyError):
        pass
    return {
        "version": 1,
        "token": message["token"],
        "digest": message["digest"],
        **message["identity"],
        "members": [{"argv": argv, "exit_code": None, "signal": None} for argv in message["members"]],
        "exit_code": None,
        "signal": None,
        "started_at": None,
        "ended_at": None,
        "host": UNKNOWN_HOST,
        "boot_id": "",
        "peak_memory_bytes": None,
        "cpu_seconds": 0.0,
        "left_over": 0,
        "undead": [],
    }


def _iso(instant_us: int | None) -> str | None:
    if instant_us is None:
        return None
    return datetime.datetime.fromtimestamp(instant_us / 1e6, datetime.UTC).isoformat()
