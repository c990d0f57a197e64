"""Ownership where locks do not reach: two hosts, each a namespace of its own (name, processes, network, mounts) (G26).

The lock file is another one on each host, as on a network file system that does not carry flock.
"""

from __future__ import annotations

import contextlib
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

ROOT = Path(__file__).resolve().parents[2]
SILENCE_SECONDS = 2.0
LONG_SECONDS = 60.0  # on a machine with other work an owner may be late; who sees it alive does not wait so long
# Takes the state, says so, then renews and checks 20 times a second until it is told or finds another owner.
HEAD = """
import sys, time
from pathlib import Path
from canard_pipe.engine.ownership import Ownership
from canard_pipe.errors import StateHeld
try:
    lock, silence = Path(sys.argv[1]), float(sys.argv[3])
    with Ownership.take(lock, wait_seconds=1, renew_seconds=0.2, silence_seconds=silence) as owned:
        print("owns", owned.predecessor.host if owned.predecessor else None, flush=True)
        while not Path(sys.argv[2]).exists():
            time.sleep(0.05)
            owned.check()
            owned.renew()
            owned.check()
    print("gave back", flush=True)
except StateHeld as held:
    print("held by", held.host, flush=True)
"""


class Host:
    """A host of this test: its name, and its own lock file in the place of the state's."""

    def __init__(self, state: Path, name: str, silence_seconds: float) -> None:
        self.name, self.leave = name, state / f"leave-{name}"
        own_lock = state.parent / f"lock-of-{name}"
        own_lock.touch()
        lock = state / "owner.lock"
        script = (
            f"hostname {name} && mount --bind '{own_lock}' '{lock}' && mount -t proc proc /proc && "
            'exec "$0" -c "$1" "$2" "$3" "$4"'
        )
        self.process: Any = subprocess.Popen(
            [*UNSHARE, "sh", "-c", script, sys.executable, HEAD, str(lock), str(self.leave), str(silence_seconds)],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def says(self) -> str:
        return str(self.process.stdout.readline()).strip()

    def signal(self, number: int) -> None:
        """Send a signal to what runs on the host, not to unshare."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), number)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.signal(signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    require_hosts()
    folder = tmp_path / ".canard"
    folder.mkdir()
    (folder / "owner.lock").touch()
    return folder


@pytest.fixture
def host(state: Path) -> Iterator[Any]:
    hosts: list[Host] = []

    def start(name: str, silence_seconds: float = SILENCE_SECONDS) -> Host:
        hosts.append(Host(state, name, silence_seconds))
        return hosts[-1]

    yield start
    for each in hosts:
        each.end()


def test_another_host_refuses_while_the_owner_lives_and_follows_when_it_gives_back(host, state):
    first = host("head-a")
    assert first.says() == "owns None"
    assert host("head-b", LONG_SECONDS).says() == "held by head-a"
    first.leave.touch()
    assert first.says() == "gave back"
    assert host("head-c").says() == "owns None"


def test_another_host_takes_over_after_the_silence_of_a_dead_one(host):
    first = host("head-a")
    assert first.says() == "owns None"
    first.signal(signal.SIGKILL)
    assert host("head-b").says() == "owns head-a"


def test_an_owner_that_was_taken_over_stops_before_its_next_write(host, state):
    first = host("head-a")
    assert first.says() == "owns None"
    first.signal(signal.SIGSTOP)
    second = host("head-b")
    assert second.says() == "owns head-a"
    first.signal(signal.SIGCONT)
    assert first.says() == "held by head-b"
    wait_until(lambda: '"head-b"' in (state / "owner.json").read_text())
    second.leave.touch()
    assert second.says() == "gave back"
