"""The program of a job: who may begin with a try, what is recorded, and what a run that has given up keeps out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from canard_pipe.execution import record
from canard_pipe.execution.command import Options, command
from canard_pipe.execution.executor import Job
from canard_pipe.execution.record import Identity
from canard_pipe.execution.resources import Request
from canard_pipe.execution.slurm import script
from canard_pipe.execution.slurm.script import Site
from tests.conftest import wait_until

RUNNER = Path(script.__file__).with_name("runner.py")
IDENTITY = Identity("task", "step", 1, "origin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, ["bash", "-c", "echo $TMPDIR > out; echo x >> ../executions"])


def made(
    tmp_path: Path, *members: list[str], site: Site | None = None, seconds: float | None = None, **options
) -> Path:
    place = tmp_path / "attempt-1"
    (place / "tmp").mkdir(parents=True)
    variables = {"PATH": os.environ["PATH"], **options.get("env", {})}
    described = command(members, cast("Options", options))
    job = Job("token" * 4, "digest", IDENTITY, described, 1, place, variables, seconds, Request(1))
    script.write(job, os.environ, site or Site(), 0.5)
    return place


def environ(job_id: str = "7", restarts: str | None = None, **more: str) -> dict[str, str]:
    return {**os.environ, "SLURM_JOB_ID": job_id, **({"SLURM_RESTART_COUNT": restarts} if restarts else {}), **more}


def run(folder: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(RUNNER), str(folder)], env=environ(**options), capture_output=True, text=True,
        timeout=60, check=False, cwd="/", stdin=subprocess.DEVNULL,
    )  # fmt: skip


def executions(folder: Path) -> int:
    file = folder.parent / "executions"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_record_is_that_of_the_local_executor_with_the_jobs_number(folder):
    assert run(folder).returncode == 0
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert (found.succeeded, found.job_id, found.token) == (True, "7", "token" * 4)
    assert (folder / "out").read_text().strip() == str(folder / "tmp")


def test_an_exit_code_above_127_is_recorded_as_it_is(tmp_path):
    folder = made(tmp_path, ["bash", "-c", "exit 200"])
    assert run(folder).returncode == 200
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert found.exit_code == 200


def test_every_member_of_a_pipe_counts(tmp_path):
    folder = made(tmp_path, ["false"], ["cat"])
    assert run(folder).returncode == 1
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert [member.exit_code for member in found.members] == [1, 0]


def test_another_job_cannot_begin_with_the_same_try(folder):
    run(folder)
    before = (folder / "status.json").read_bytes()
    again = run(folder, job_id="8")
    assert "has begun with this try already" in again.stderr
    assert executions(folder) == 1
    assert (folder / "status.json").read_bytes() == before


def test_the_same_job_put_back_by_slurm_takes_over_and_once_only(folder):
    run(folder)
    run(folder, restarts="1")
    assert executions(folder) == 2
    run(folder, restarts="1")
    assert executions(folder) == 2
    assert json.loads((folder / "started").read_text())["restarts"] == 1


def test_a_revoked_try_is_not_begun(folder):
    (folder / "revoked").touch()
    assert "given up" in run(folder).stderr
    assert executions(folder) == 0
    assert not (folder / "status.json").exists()


def test_a_job_that_is_revoked_while_it_runs_writes_no_record(tmp_path):
    folder = made(tmp_path, ["bash", "-c", "touch begun; while [ ! -e revoked ]; do sleep 0.05; done"])
    process = start(folder)
    wait_until(lambda: (folder / "begun").exists(), 30)
    (folder / "revoked").touch()
    process.wait(30)
    assert not (folder / "status.json").exists()


def test_when_slurm_ends_the_job_the_record_says_so_and_nothing_is_left(tmp_path):
    folder = made(tmp_path, ["bash", "-c", "touch begun; trap '' TERM; sleep 600 & wait; wait"])
    process = start(folder)
    wait_until(lambda: (folder / "begun").exists(), 30)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert (found.ended_by, found.by_itself) == ("terminated", False)


def test_time_is_kept_on_the_node(tmp_path):
    folder = made(tmp_path, ["sleep", "600"], seconds=0.3)
    run(folder)
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert found.ended_by == "timeout"


def test_an_element_of_an_array_has_the_arrays_number(folder):
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(RUNNER), str(folder)], check=False, timeout=60, stdin=subprocess.DEVNULL,
        env=environ("20", SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="2"),
    )  # fmt: skip
    assert ended.returncode == 0
    found = record.read(folder, IDENTITY)
    assert found is not None
    assert found.job_id == "17_2"


def test_what_the_sites_lines_set_reaches_the_command_and_slurms_own_variables_do_not(tmp_path):
    """BUGS 41, 59."""
    folder = made(tmp_path, ["env"], site=Site(lines=("export FROM_MODULE=1",)), stdout="out", env={"ASKED": "2"})
    ended = subprocess.run(
        ["bash", str(folder / "slurm.sh")], env=environ(ASKED="node's"), check=False, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0
    lines = (folder / "out").read_text().splitlines()
    assert {"FROM_MODULE=1", "ASKED=2"} <= set(lines)
    assert not [line for line in lines if line.startswith("SLURM_")]


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(RUNNER), str(folder)], env=environ(), cwd="/", stdin=subprocess.DEVNULL
    )
