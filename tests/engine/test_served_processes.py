"""A server and workers that are processes of their own, killed at random and spoken to by strangers (F2, F3, G26)."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canard_pipe
from tests.conftest import wait_until
from tests.strangers import free_uri, strangers

PROGRAM = Path(__file__).with_name("served_program.py")
ROOT = PROGRAM.parents[2]
SLOTS, WORKERS = 8, 3
big = pytest.mark.skipif(not os.environ.get("CANARD_BIG"), reason="takes minutes; make survival runs it")


class Site:
    """A server and its workers."""

    def __init__(self, folder: Path) -> None:
        self.path, self.effects = folder / "state.duckdb", folder / "effects.txt"
        self.uri, self.token = free_uri(), secrets.token_urlsafe(16)
        self.environment = {**os.environ, "CANARD_TOKEN": self.token, "PYTHONPATH": str(ROOT)}
        self.processes: list[Any] = []
        self.server: Any = None
        self.workers: list[Any] = []

    def start(self, *arguments: object) -> Any:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)], env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.processes.append(process)
        return process

    def serve(self) -> None:
        self.server = self.start("serve", self.path, self.uri)
        assert self.server.stdout.readline() == "serving\n"

    def work(self) -> None:
        self.workers.append(self.start("work", self.uri, self.effects, SLOTS))

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.effects.read_text().splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.serve()
    yield site
    site.end()


def all_done(site: Site, count: int) -> bool:
    with (
        contextlib.suppress(canard_pipe.StorageError), canard_pipe.connect(site.uri, site.token) as database,
    ):
        return database.queues()["default"]["completed"] == count
    return False


def spawn(site: Site, count: int) -> list[str]:
    with canard_pipe.connect(site.uri, site.token) as database:
        return database.spawn_many("three", [None] * count, ids=[f"t{at}" for at in range(count)], max_failures=1000)


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=big)])
@pytest.mark.timeout(600)
def test_three_workers_of_eight_slots_do_everything_exactly_once(site, count):
    """F2."""
    ids = spawn(site, count)
    for _ in range(WORKERS):
        site.work()
    wait_until(lambda: all_done(site, count), 500, every_seconds=0.5)
    ran = Counter((line[1], line[2]) for line in site.lines() if line[0] == "ran")
    assert ran == Counter({(id, step): 1 for id in ids for step in "abc"})
    with canard_pipe.connect(site.uri, site.token) as database:
        assert {(task.attempt, task.failures) for task in database.tasks(limit=count)} == {(1, 0)}


@pytest.mark.parametrize(("count", "deaths"), [(150, 8), pytest.param(2000, 60, marks=big)])
@pytest.mark.timeout(900)
def test_whatever_is_killed_every_task_ends_and_no_saved_step_runs_again(site, count, deaths):
    """G1, G4, G11, S26: workers and the server are killed at random moments and started anew."""
    chance = random.Random(7)
    ids = spawn(site, count)
    for _ in range(WORKERS):
        site.work()
    kills = 0
    deadline = time.monotonic() + 800
    while kills < deaths or not all_done(site, count):
        assert time.monotonic() < deadline
        time.sleep(chance.uniform(0.1, 0.8))
        if kills < deaths:
            kills += 1
            if chance.random() < 0.4:
                site.server.send_signal(signal.SIGKILL)
                site.server.wait()
                site.serve()
            else:
                site.workers.pop(chance.randrange(len(site.workers))).kill()
                site.work()
    assert_kept(site, ids)


def assert_kept(site: Site, ids: list[str]) -> None:
    seen: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for kind, id, step, attempt, value in site.lines():
        number = int(attempt)
        if kind == "seen":
            assert set(seen[id, step].values()) <= {value}, "two values of one step"
            seen[id, step].setdefault(number, value)
        else:
            assert all(number <= earlier for earlier in seen[id, step]), "a saved step ran again in a later attempt"
    with canard_pipe.connect(site.uri, site.token) as database:
        for id in ids:
            record = database.inspect(id)
            assert record is not None
            assert record.state == "completed"
            assert [saved.name for saved in record.checkpoints] == ["a", "b", "c"]
            for saved in record.checkpoints:
                assert set(seen[id, saved.name].values()) == {saved.value}, "a stale write was accepted"


def test_garbage_at_the_port_harms_nobody(site):
    """Random bytes, half messages, a thousand connections: workers go on, and the server answers."""
    count = 100
    spawn(site, count)
    site.work()
    with strangers(site.uri):
        assert site.server.poll() is None
    wait_until(lambda: all_done(site, count), 100, every_seconds=0.3)
    assert site.server.poll() is None
    assert Counter((line[1], line[2]) for line in site.lines() if line[0] == "ran").total() >= count * 3


def test_a_worker_that_vanished_loses_only_its_lease(site):
    """S2, S6: what it held comes back when the lease is over; the server does not notice anything else."""
    spawn(site, 1)
    with canard_pipe.connect(site.uri, site.token) as vanished:
        claim = vanished.claim(lease_seconds=0.5)
        assert claim is not None
    with canard_pipe.connect(site.uri, site.token) as database:
        wait_until(lambda: (again := database.claim()) is not None and again.failures == 1, 20, every_seconds=0.1)


def test_neither_a_wrong_token_nor_none_is_answered(site):
    with pytest.raises(canard_pipe.InputError, match="wants a token"):
        canard_pipe.connect(site.uri, "")
    with pytest.raises(canard_pipe.StorageError, match="refuses the token"):
        canard_pipe.connect(site.uri, "wrong-token")


def test_no_byte_goes_to_a_proxy(site, monkeypatch):
    """With http_proxy set, as on many clusters, DuckDB's client would send it the token."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.2)
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            site.environment[name] = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        site.work()
        spawn(site, 5)
        wait_until(lambda: all_done(site, 5), 60, every_seconds=0.2)
        with pytest.raises(TimeoutError):
            proxy.accept()


def test_the_token_is_in_no_argument_list(site):
    site.work()
    for process in (site.server, *site.workers):
        assert site.token.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_a_client_that_has_closed_its_connection_ends_well(site):
    """A thread that is still inside DuckDB when the interpreter ends would abort the process."""
    program = "import os, canard_pipe, sys; canard_pipe.connect(sys.argv[1], os.environ['CANARD_TOKEN']).close()"
    for _ in range(6):
        ended = subprocess.run(
            [sys.executable, "-c", program, site.uri], env=site.environment, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
