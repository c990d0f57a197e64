"""A worker beside its owner: steered from other terminals, and left alone when the owner dies (S36, G29, L17)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.program import LOG, canard, environment, start

PIPELINE = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("held", rows=Row, key="sample")

@pipeline.sample
def each(sample, ctx):
    ctx.step("first", lambda: 1)
    return ctx.step("long", lambda: str(ctx.shell(
        "echo $$ > {pid}; while [ ! -e {go} ]; do sleep 0.05; done", pid=HERE / f"{sample.key}.pid", go=HERE / "go")))
"""
# A worker whose leases are short, so that the tests need not wait for half a minute.
LEASE_SECONDS = 6.0
WORKER = (
    "from canard_pipe.pipeline import joining; import sys; joining.LEASE_SECONDS = float(sys.argv.pop(1)); "
    "from canard_pipe.cli.main import main; sys.exit(main())"
)


class Site:
    """A launch folder, and the processes that were started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Any] = []

    def start(self, *arguments: str) -> Any:
        self.processes.append(start(self.folder, *arguments))
        return self.processes[-1]

    def worker(self, *arguments: str, lease_seconds: float = LEASE_SECONDS) -> Any:
        with (self.folder / LOG).open("a") as log:
            self.processes.append(subprocess.Popen(
                [sys.executable, "-c", WORKER, str(lease_seconds), "worker", "--slots", "2", "--cpus", "2", *arguments],
                cwd=self.folder, env=environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            ))
        return self.processes[-1]

    def serve(self) -> Any:
        before = self.log.count("serving")
        server = self.start("serve")
        wait_until(lambda: self.log.count("serving") > before, 30)
        return server

    @property
    def log(self) -> str:
        return (self.folder / LOG).read_text()

    def ask(self, *arguments: str) -> str:
        answer = canard(self.folder, *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def rows(self, sql: str) -> Any:
        return json.loads(self.ask("sql", sql, "--json"))

    def pid_of(self, sample: str) -> int:
        """Return the process of the sample's command, which is forgotten here: the next one is another."""
        file = self.folder / f"{sample}.pid"
        try:
            wait_until(lambda: file.exists() and file.read_text().endswith("\n"), 60)
        except pytest.fail.Exception as late:
            raise AssertionError(f"{sample} does not run:\n{self.log}") from late
        pid = int(file.read_text())
        file.unlink()
        return pid

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "samples.csv").write_text("sample\nS0\nS1\n")
    site = Site(tmp_path)
    yield site
    site.end()


def planned(site: Site) -> None:
    """Let a run plan its samples, begin with one, and die."""
    run = site.start("run", "pipeline.py", "samples.csv", "--slots", "1", "--cpus", "1")
    killed = site.pid_of("S0")
    run.kill()
    run.wait()
    wait_until(lambda: is_gone(killed), 20)


def test_cancel_and_retry_reach_a_sample_that_a_worker_has(site):
    """S36: the worker learns at its next renewal, and ends the command; it goes on with what is retried."""
    run = site.start("run", "pipeline.py", "samples.csv", "--slots", "1", "--cpus", "1")
    site.pid_of("S0")
    worker = site.worker(lease_seconds=3)
    at_work = site.pid_of("S1")
    assert "cancelled: S1" in site.ask("cancel", "S1")
    wait_until(lambda: is_gone(at_work), 20)
    assert "will run again: S1" in site.ask("retry", "S1")
    again = site.pid_of("S1")
    assert again != at_work
    (site.folder / "go").touch()
    assert run.wait(60) == 0, site.log
    assert worker.wait(30) == 0, site.log


def test_a_worker_whose_owner_is_gone_ends_its_commands_before_their_deadline_and_takes_them_up_again(site):
    """Nothing that a dead owner's worker had counts as failed, when the next owner answers in time."""
    planned(site)
    server = site.serve()
    worker = site.worker("--wait", "60")
    commands = [site.pid_of("S0"), site.pid_of("S1")]
    server.send_signal(signal.SIGKILL)
    server.wait()
    deadlines = site.rows(
        "SELECT min(epoch_us(deadline)) AS at FROM canard_absurd.tasks WHERE state = 'running'"
    )
    wait_until(lambda: all(map(is_gone, commands)), 20)
    assert time.time() * 1e6 < deadlines[0]["at"]
    assert worker.poll() is None
    second = site.serve()
    assert {site.pid_of("S0"), site.pid_of("S1")}.isdisjoint(commands)
    (site.folder / "go").touch()
    ended = "SELECT count(*) AS n, sum(failures) AS failures FROM canard_absurd.tasks WHERE state = 'completed'"
    wait_until(lambda: site.rows(ended) == [{"n": 2, "failures": 0}], 30, every_seconds=0.3)
    for process in (worker, second):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, site.log


def test_a_server_without_a_run_carries_out_cancel_retry_and_backup_and_writes_what_status_shows(site):
    planned(site)
    server = site.serve()
    site.worker(lease_seconds=1.5)
    site.pid_of("S0")
    at_work = site.pid_of("S1")
    assert "cancelled: S1" in site.ask("cancel", "S1")
    wait_until(lambda: is_gone(at_work), 20)
    status = site.folder / ".canard" / "status.json"
    wait_until(lambda: json.loads(status.read_text())["counts"].get("cancelled") == 1, 20)
    assert json.loads(status.read_text())["pid"] == server.pid
    assert "will run again: S1" in site.ask("retry", "S1")
    site.pid_of("S1")
    site.ask("backup", "copy.duckdb")
    assert (site.folder / "copy.duckdb").stat().st_size
    assert canard(site.folder, "cancel", "unknown").returncode == 2
    assert site.log.count("asked from another terminal") == 4
