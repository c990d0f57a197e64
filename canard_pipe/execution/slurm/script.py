"""What a try needs to run as a job, from its folder alone: ``job.json``, ``slurm.sh``, and the options of sbatch.

Options stand on the command line, where they win over everything else. Memory is asked for in MiB and time in minutes,
both rounded up. The script's environment is Slurm's own (``--export=NONE``); the command's is written in ``job.json``.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.execution import environment
from canard_pipe.execution.executor import Job
from canard_pipe.execution.slurm.runner import JOB

LINGER_SECONDS = 2.0
SCRIPT, ARRAY_SCRIPT, LOG = "slurm.sh", "slurm-array.sh", "slurm.log"
RUNNER = Path(__file__).with_name("runner.py")
_NAME_LENGTH, _TOKEN_LENGTH = 64, 12  # sacct does not find names of some hundred bytes
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")


@dataclass(frozen=True, slots=True)
class Site:
    """What every job of a site gets. ``options`` are further options of sbatch, ``lines`` those of the script before
    the command starts (``module load …``); with any, what they set in the environment reaches the command, too.

    ``python`` runs the supervisor on the node; this interpreter by default. ``requeue`` lets Slurm put a job back into
    the queue by itself.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    reservation: str | None = None
    cluster: str | None = None
    options: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    python: str = field(default=sys.executable)
    requeue: bool = False


def job_name(task: str, step: str, token: str) -> str:
    """Return a name that people can read and no other job has: ``cp-germline-A-align-0f1e2d3c4b5a``."""
    what = "-".join(_UNSAFE.sub("-", part).strip("-") for part in (task, step) if part)
    room = _NAME_LENGTH - _TOKEN_LENGTH - len("cp--")
    return f"cp-{what[:room]}-{token[:_TOKEN_LENGTH]}"


def own_name(name: str, token: str) -> str:
    """Return the name of a job that is submitted anew or leads an array: that of its own token."""
    return f"{name[: -_TOKEN_LENGTH]}{token[:_TOKEN_LENGTH]}"


def write(job: Job, run_environment: Mapping[str, str], site: Site, grace_seconds: float) -> None:
    """Write ``job.json`` and ``slurm.sh`` into the folder of the try."""
    variables = environment.of_try(job.environment, job.folder, token=job.token, run_token=job.token)
    passed = environment.passed(run_environment)
    message: dict[str, Any] = job.start_message(variables, grace_seconds, LINGER_SECONDS)
    message["from_node"] = bool(site.lines)
    message["own"] = sorted(
        name for name, value in variables.items() if passed.get(name) != value or name in job.command.env
    )
    (job.folder / JOB).write_text(json.dumps(message, indent=1) + "\n", encoding="utf-8")
    (job.folder / SCRIPT).write_text(text(site, shlex.quote(str(job.folder))), encoding="utf-8")


def text(site: Site, folder: str, before: str = "") -> str:
    """Return the batch script; ``folder`` is a word of shell that means the folder of the try."""
    program = " ".join(shlex.quote(word) for word in (site.python, "-I", "-S", "-X", "utf8", str(RUNNER)))
    lines = ["#!/bin/bash", "# Made by canard-pipe for sbatch. command.sh runs the command by hand.", *site.lines]
    return "\n".join([*lines, f"{before}exec {program} {folder}", ""])


def options(
    site: Site, *, name: str, folder: Path, cpus: float, memory_bytes: int | None, time_seconds: float | None,
    comment: str, array: int | None = None,
) -> list[str]:
    """Return the options of sbatch for one try, or for an array of so many, but for those about its output's form."""
    log = str(folder).replace("%", "%%") + ("/" + LOG if array is None else "/slurm-%A_%a.log")
    given = [
        f"--job-name={name}", f"--comment={comment}", f"--chdir={folder}",
        f"--output={log}", f"--error={log}", "--open-mode=append", "--input=/dev/null",
        "--export=NONE", "--requeue" if site.requeue else "--no-requeue",
        "--nodes=1", "--ntasks=1", f"--cpus-per-task={max(1, math.ceil(cpus))}",
    ]  # fmt: skip
    if array is not None:
        given.append(f"--array=0-{array - 1}")
    if memory_bytes:
        given.append(f"--mem={math.ceil(memory_bytes / 1024**2)}M")
    if time_seconds is not None:
        given.append(f"--time={math.ceil(time_seconds / 60)}")
    for option in ("partition", "account", "qos", "constraint", "gres", "reservation"):
        value = getattr(site, option)
        if value:
            given.append(f"--{option}={value}")
    if site.cluster:
        given.append(f"--clusters={site.cluster}")
    return [*given, *site.options]


def comment(task_id: str, step: str) -> str:
    """Return what Slurm shows as the comment of a job."""
    said = f"canard-pipe: {task_id}" + (f", step {step}" if step else "")
    return re.sub(r"[\x00-\x1f\x7f|]", " ", said)[:200]


def write_array(folders: Sequence[Path], site: Site) -> Path:
    """Write the script of an array, each element of which runs the try in one of ``folders``, into the first."""
    listed = " ".join(shlex.quote(str(folder)) for folder in folders)
    script = folders[0] / ARRAY_SCRIPT
    place = f"folders=({listed})\n"
    script.write_text(text(site, '"${folders[$SLURM_ARRAY_TASK_ID]}"', before=place), encoding="utf-8")
    return script
