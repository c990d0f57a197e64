"""A real Slurm on this machine, and projects whose commands run on it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pipelines import canard, start
from tests.conftest import absent, wait_until

ROOT = Path(__file__).resolve().parents[2]
# Answers within seconds, where a site would be patient for minutes.
SETTINGS = """
executor = "slurm"
[slurm]
interval = "1s"
wait_for_record = "10s"
wait_for_requeue = "8s"
wait_when_unknown = "20s"
wait_in_doubt = "4s"
"""
HEADER = """
import time
from pathlib import Path
from canard_pipe import Escalate, Pipeline, SampleRow, Tries

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("pipe", rows=Row, key="sample")

def counting(sample, text):
    return ["bash", "-c", f"echo {sample.key} >> {HERE}/executions; {text}"]
"""


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("slurm_cluster", ROOT / "slurm" / "cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Any]:
    module = _module()
    missing = [name for name in module.PROGRAMS if shutil.which(name, path=module._PATH) is None]
    if missing or os.getuid() != 0:
        absent(f"Slurm ({', '.join(missing) or 'needs root'})")
    folder = Path(tempfile.gettempdir(), f"canard-slurm-{os.getpid()}")  # short: it holds sockets
    cluster = module.Cluster(folder, _free_ports())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.wipe()


@pytest.fixture
def cluster(running_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The cluster, whole at the beginning of each test and without jobs at its end."""
    for name, value in running_cluster.environ().items():
        monkeypatch.setenv(name, value)
    running_cluster.start()
    yield running_cluster
    for name in running_cluster.daemons():
        with contextlib.suppress(Exception):
            running_cluster.go_on(name)
    running_cluster.start()
    running_cluster.call(["scancel", "--user=root"])
    wait_until(lambda: not running_cluster.call(["squeue", "-h"]).stdout.strip(), 60, every_seconds=0.2)


def _free_ports() -> int:
    """Return the first of some ports that nobody uses, below those that the system gives to clients."""
    for first in range(21_000 + os.getpid() % 500 * 20, 32_000, 20):
        with contextlib.ExitStack() as stack:
            try:
                for port in (first, first + 1, *range(first + 10, first + 14)):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports were found")


class Site:
    """A launch folder on a cluster."""

    def __init__(self, folder: Path, cluster: Any) -> None:
        self.folder, self.cluster = folder, cluster
        self._runs: list[subprocess.Popen[str]] = []
        self.settings()

    def settings(self, **slurm: str) -> None:
        more = "".join(f"{name} = {value}\n" for name, value in slurm.items())
        (self.folder / "canard.toml").write_text(SETTINGS + more)

    def write(self, pipeline: str, *samples: str) -> None:
        (self.folder / "pipe.py").write_text(HEADER + textwrap.dedent(pipeline))
        (self.folder / "s.csv").write_text("\n".join(["sample", *(samples or ("A",))]) + "\n")

    def run(self, *arguments: str, seconds: float = 110) -> subprocess.CompletedProcess[str]:
        return canard(self.folder, "run", "pipe.py", "s.csv", *arguments, seconds=seconds)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        run = start(self.folder, "run", "pipe.py", "s.csv", *arguments)
        self._runs.append(run)
        return run

    def kill(self, run: subprocess.Popen[str]) -> None:
        """The head dies."""
        run.send_signal(signal.SIGKILL)
        run.wait(30)

    def close(self) -> None:
        for run in self._runs:
            if run.poll() is None:
                self.kill(run)

    def sql(self, text: str) -> list[tuple[str, ...]]:
        import csv
        import io

        found = canard(self.folder, "sql", "--csv", text)
        return [tuple(row) for row in csv.reader(io.StringIO(found.stdout))][1:]

    def jobs(self) -> list[tuple[str, ...]]:
        return self.sql("select state, cause from canard_absurd.jobs order by recorded_at, job_id")

    def until_jobs(self, *states: str, seconds: float = 60) -> None:
        wait_until(lambda: tuple(row[0] for row in self.jobs()) == states, seconds, every_seconds=0.3)

    @property
    def executions(self) -> list[str]:
        file = self.folder / "executions"
        return file.read_text().split() if file.exists() else []

    @property
    def log(self) -> str:
        return (self.folder / "run.log").read_text()


@pytest.fixture
def site(tmp_path: Path, cluster: Any) -> Iterator[Site]:
    made = Site(tmp_path, cluster)
    yield made
    made.close()
