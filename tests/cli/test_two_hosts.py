"""A run on one host, workers and people on another one: its network, processes and mounts are of its own (G26, L17)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.hosts import UNSHARE, require_hosts
from tests.program import LOG, ROOT, command, environment, start

PIPELINE = """
import socket
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("far", rows=Row, key="sample")

@pipeline.sample
def each(sample, ctx):
    ctx.step("who", socket.gethostname)
    out = ctx.step("made", lambda: ctx.shell(
        'uname -n > out.txt; [ "$(uname -n)" = far-away ] || while [ ! -e {go} ]; do sleep 0.05; done',
        go=Path(__file__).parent / "go", outputs=["out.txt"]))
    return ctx.publish({"out.txt": out / "out.txt"})
"""
PORT = 9494  # in the other host's network, where nothing else is
# The launch folder lies elsewhere there, and is not to be seen where the run has it.
SCRIPT = """
hostname far-away && mount -t proc proc /proc && mount --bind "$1" "$2" && mount -t tmpfs none "$1" && cd "$2" || exit
"$0" -m tests.relay "tcp:$3" "unix:$4" >/dev/null &
shift 4
exec "$@"
"""


class Hosts:
    """The launch folder here, the same folder there, and a tunnel."""

    def __init__(self, folder: Path) -> None:
        self.launch, self.there, self.tunnel = folder / "launch", folder / "elsewhere", folder / "tunnel"
        self.launch.mkdir()
        self.there.mkdir()
        self.processes: list[Any] = []

    def run(self, *arguments: str) -> Any:
        self.processes.append(start(self.launch, "run", *arguments))
        return self.processes[-1]

    def dig(self, port: str) -> None:
        relay = subprocess.Popen(
            [sys.executable, "-m", "tests.relay", f"unix:{self.tunnel}", f"tcp:{port}"], env=environment(),
            stdout=subprocess.PIPE, text=True,
        )
        self.processes.append(relay)
        assert relay.stdout is not None
        assert relay.stdout.readline() == "listening\n"

    def far_away(self, *arguments: str, log: Path) -> Any:
        """Start canard-pipe on the other host."""
        with log.open("w") as file:
            self.processes.append(subprocess.Popen(
                [*UNSHARE, "sh", "-c", SCRIPT, sys.executable, str(self.launch), str(self.there), str(PORT),
                 str(self.tunnel), *command(*arguments)],
                env=environment(PYTHONPATH=str(ROOT)), cwd=ROOT, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
            ))
        return self.processes[-1]

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    require_hosts()
    hosts = Hosts(tmp_path)
    (hosts.launch / "pipeline.py").write_text(PIPELINE)
    (hosts.launch / "samples.csv").write_text("sample\nS0\nS1\nS2\nS3\n")
    yield hosts
    hosts.end()


def test_a_worker_on_another_host_takes_samples_of_a_run_and_people_there_see_its_state(hosts, tmp_path):
    run = hosts.run("pipeline.py", "samples.csv", "--slots", "1", "--cpus", "1")
    record = hosts.launch / ".canard" / "owner.json"
    wait_until(lambda: record.exists() and json.loads(record.read_text())["uri"], 40)
    owner = json.loads(record.read_text())
    hosts.dig(owner["uri"].rpartition(":")[2])
    token = tmp_path / "token.txt"
    token.write_text(owner["token"])
    log = tmp_path / "worker.log"
    worker = hosts.far_away(
        "worker", "--connect", f"quack:127.0.0.1:{PORT}", "--token-file", str(token), "--root", str(hosts.there),
        "--slots", "2", "--cpus", "2", log=log,
    )
    results = hosts.launch / "results"
    wait_until(lambda: len(list(results.glob("*/out.txt"))) == 3 or worker.poll() is not None, 60)
    for words, status, says in (
        (["status"], 0, owner["host"]), (["sql", "SELECT 1"], 3, owner["host"]),
        (["run", "pipeline.py", "samples.csv"], 3, f"process {owner['pid']} on {owner['host']}"),
    ):
        told = tmp_path / f"{words[0]}.log"
        assert (hosts.far_away(*words, log=told).wait(60), says in told.read_text()) == (status, True), told.read_text()
    (hosts.launch / "go").touch()
    assert run.wait(60) == 0, (hosts.launch / LOG).read_text()
    assert worker.wait(60) == 0, log.read_text()  # it was told an address only, and by the owner that this ends
    assert "given the state back" in log.read_text()
    assert "3 attempts made" in log.read_text()
    made = sorted(path.read_text().strip() for path in results.glob("*/out.txt"))
    assert made == sorted(["far-away"] * 3 + [os.uname().nodename])
