"""One tiny job, to see what no question tells: whether a node sees the project, and whether jobs are found again."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from canard_pipe.execution.folders import last_lines
from canard_pipe.execution.health import OK, Finding, fail, ok, warn
from canard_pipe.execution.health.filesystems import existing
from canard_pipe.execution.slurm import JobId, Refused, Seen, SlurmJob, script, states
from canard_pipe.execution.slurm.client import NO_ACCOUNTING, SlurmClient
from canard_pipe.execution.slurm.settings import SlurmSettings
from canard_pipe.execution.slurm.site import clock_finding

MEMORY, JOB_SECONDS = 100 << 20, 300.0
LOOK_SECONDS, ASK_SECONDS = 0.25, 2.0
ACCOUNTING_SECONDS = 20.0
SKEW_SECONDS = 3600.0
ANSWER, FROM_HERE = "answer", "from-here"
OLDEST_PYTHON = (3, 8)  # of the supervisor on a node


@dataclass(slots=True)
class Clock:
    """Time, replaceable in tests. Seconds."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class _Trial:
    folder: Path
    token: str
    name: str
    begun: float
    job_id: str | None = None
    seen: Seen | None = None
    asked: float = field(default=float("-inf"))

    @property
    def job(self) -> SlurmJob:
        return SlurmJob(self.token, self.name, round(self.begun * 1e6), self.job_id)


def try_job(
    client: SlurmClient, settings: SlurmSettings, work: Path, launch: Path, *, seconds: float,
    clock: Clock | None = None,
) -> Iterator[Finding]:
    """Submit a job that writes into a new folder by the place of ``work``, wait at most ``seconds`` for it to start,
    and tell what was seen. The job is cancelled if it has not ended, and the folder removed."""
    clock = clock or Clock()
    try:
        folder = Path(tempfile.mkdtemp(prefix="canard-doctor-", dir=existing(work)))
    except OSError as error:
        yield fail("shared", f"no folder can be made by {work}: {error.strerror}", "make it writable")
        return
    token = secrets.token_hex(8)
    trial = _Trial(folder, token, script.job_name("doctor", "", token), clock.wall())
    try:
        (folder / FROM_HERE).write_text(token, encoding="ascii")
        (folder / script.SCRIPT).write_text(_script(settings, trial, launch), encoding="utf-8")
        taken = yield from _submit(client, settings, trial, clock)
        if taken:
            yield from _follow(client, trial, settings, seconds, clock)
    finally:
        if trial.job_id is not None and not _is_over(trial):
            client.cancel([trial.job])
        shutil.rmtree(folder, ignore_errors=True)


def _submit(
    client: SlurmClient, settings: SlurmSettings, trial: _Trial, clock: Clock
) -> Generator[Finding, None, bool]:
    """Submit it and find it again by its name; the value is whether there is a job to follow."""
    options = script.options(
        settings.site, name=trial.name, folder=trial.folder, cpus=1, memory_bytes=MEMORY, time_seconds=JOB_SECONDS,
        comment="canard-pipe: doctor",
    )  # fmt: skip
    begun = clock.monotonic()
    answer = client.submit(trial.folder / script.SCRIPT, options)
    if isinstance(answer, Refused):
        out = "mend the settings under slurm: canard-pipe config"
        yield fail("job", f"Slurm has refused the job: {answer.text}", out)
        return False
    if isinstance(answer, JobId):
        trial.job_id = answer.number
        yield ok("job", f"sbatch has taken job {answer.number} in {clock.monotonic() - begun:.2f} s")
    else:
        out = "ask again later; a run looks such a job up"
        yield warn("job", f"nobody can tell whether there is a job: {answer.text}", out)
    _look_up(client, trial, clock)
    if trial.seen is None:
        yield fail(
            "look-up", f"the job's name {trial.name} is found neither by squeue nor by sacct",
            "ask the administrators whether job names are changed: by them a run finds its jobs again",
        )  # fmt: skip
        return trial.job_id is not None
    yield ok("look-up", f"the job is found by its name (squeue --name: {trial.seen.job_id})")
    trial.job_id = trial.job_id or trial.seen.job_id
    if trial.seen.submit_us is not None:
        stamp, now = trial.seen.submit_us / 1e6, clock.wall()
        found = clock_finding("the controller", stamp - now if stamp > now else min(stamp + 1 - trial.begun, 0.0))
        if found.level != OK:  # that it is right was said before
            yield found
    return True


def _follow(
    client: SlurmClient, trial: _Trial, settings: SlurmSettings, seconds: float, clock: Clock
) -> Iterator[Finding]:
    """Wait until the job's answer is seen here: ``seconds`` for its start, then as long as a shared disk may lag."""
    begun = clock.monotonic()
    started: float | None = None
    while not _answered(trial.folder):
        now = clock.monotonic()
        if now - trial.asked >= ASK_SECONDS:
            _look_up(client, trial, clock)
            if started is None and trial.seen is not None and not states.meaning(trial.seen.state).waiting:
                started = now
        if started is not None and now - started >= settings.patience.record:
            yield _not_seen(trial, now - started)
            return
        if started is None and now - begun >= seconds:
            why = f": {trial.seen.reason}" if trial.seen is not None and trial.seen.reason else ""
            text = f"it has not started within {seconds:g} s{why}; it is cancelled, and what nodes see is not known"
            yield warn("job", text, "ask again with more patience: --wait 30m")
            return
        clock.sleep(LOOK_SECONDS)
    yield from _answer(trial, clock)
    yield from _accounting(client, trial, clock)


def _answer(trial: _Trial, clock: Clock) -> Iterator[Finding]:
    """Judge what the node has written."""
    seen_at = clock.wall()
    lines = (trial.folder / ANSWER).read_text(encoding="utf-8", errors="replace").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    node = said.get("host", "?")
    yield ok("shared", f"the node {node} has written into {trial.folder.parent}, which was seen here "
                       f"{seen_at - trial.begun:.1f} s after submission")  # fmt: skip
    if said.get("token") != trial.token:
        yield fail("shared", f"the node {node} does not see what was written here into {trial.folder.parent} before",
                   "keep work on a file system that all nodes share")  # fmt: skip
    if said.get("launch") != "yes":
        yield fail("shared", f"the node {node} does not see the launch folder", "start in a folder that nodes share")
    version = tuple(int(part) for part in said.get("python", "").split(".") if part.isdigit())
    if version < OLDEST_PYTHON:
        yield fail("python", f"the node {node} cannot start the Python that watches over commands"
                             + (f" (it is {said['python']})" if version else ""),
                   "install canard-pipe where nodes see it, or name another: slurm.python")  # fmt: skip
    elif said.get("runner") != "yes":
        yield fail("python", f"the node {node} does not see canard-pipe's own files", "install it where nodes see it")
    else:
        yield ok("python", f"the node {node} starts Python {said['python']} and sees canard-pipe")
    if re.fullmatch(r"\d+\.\d+", said.get("time", "")):
        at = float(said["time"])
        yield clock_finding(f"the node {node}", at - seen_at if at > seen_at else min(at - trial.begun, 0.0))


def _accounting(client: SlurmClient, trial: _Trial, clock: Clock) -> Iterator[Finding]:
    """Tell whether sacct finds the job by its name; it hears of jobs somewhat later than the controller."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(trial.begun - SKEW_SECONDS))
    words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--name={trial.name}", f"--starttime={since}",
             "--format=JobID,JobName"]  # fmt: skip
    begun = clock.monotonic()
    while True:
        code, said, trouble = client.ask(words)
        if NO_ACCOUNTING.search(said + trouble):
            return  # said before
        if any(line.split("|")[-1] == trial.name for line in said.splitlines()):
            yield ok("look-up", f"the job is found by its name (sacct --name), {clock.monotonic() - begun:.1f} s later")
            return
        if clock.monotonic() - begun >= ACCOUNTING_SECONDS:
            why = trouble if code != 0 else f"not within {ACCOUNTING_SECONDS:g} s"
            yield warn("look-up", f"sacct does not find the job by its name ({why})",
                       "nothing has to be done: squeue and the jobs' records are asked too")  # fmt: skip
            return
        clock.sleep(ASK_SECONDS)


def _not_seen(trial: _Trial, waited: float) -> Finding:
    """Say that the job has started and its answer is not here."""
    state = trial.seen.state if trial.seen is not None else "gone"
    log = last_lines(trial.folder / script.LOG, 3)
    text = f"the job is {state} on {(trial.seen and trial.seen.node) or '?'}, and what it writes into " \
           f"{trial.folder.parent} is not seen here after {waited:.0f} s" + (f": {' / '.join(log)}" if log else "")
    return fail("shared", text, "keep work and results on a file system that all nodes share, under the same path; "
                                "on one that lags, raise slurm.wait_for_record")  # fmt: skip


def _look_up(client: SlurmClient, trial: _Trial, clock: Clock) -> None:
    trial.asked = clock.monotonic()
    answer = client.by_name([trial.name], round((trial.begun - SKEW_SECONDS) * 1e6))
    trial.seen = next((seen for seen in answer.seen if seen.name == trial.name), trial.seen)


def _is_over(trial: _Trial) -> bool:
    return trial.seen is not None and states.meaning(trial.seen.state).final


def _answered(folder: Path) -> bool:
    os.listdir(folder)  # noqa: PTH208 - makes a network file system look anew
    return (folder / ANSWER).exists()


def _script(settings: SlurmSettings, trial: _Trial, launch: Path) -> str:
    """Return a batch script that tells what the node sees, in one file that appears in one step."""
    folder, python = shlex.quote(str(trial.folder)), shlex.quote(settings.site.python)
    return "\n".join([
        "#!/bin/bash", "# Made by canard-pipe doctor.", *settings.site.lines,
        f"cd {folder} || exit 1",
        "{",
        'echo "time=$(date +%s.%N)"',
        'echo "host=$(uname -n)"',
        f'echo "token=$(cat {FROM_HERE})"',
        f'[ -d {shlex.quote(str(launch))} ] && echo "launch=yes"',
        f'[ -r {shlex.quote(str(script.RUNNER))} ] && echo "runner=yes"',
        f"""{python} -I -S -c 'import sys; print("python=%d.%d.%d" % sys.version_info[:3])'""",
        f"}} > {ANSWER}.new 2>&1",
        f"mv {ANSWER}.new {ANSWER}", "",
    ])  # fmt: skip
