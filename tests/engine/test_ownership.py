"""One owner of the state (G26, BUGS 46-48): the lock, the record beside it, and who is believed to be alive."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.engine.owner_record import Identity, OwnerRecord, Staged, process_start, read_owner, record_path
from canard_pipe.engine.ownership import Ownership
from canard_pipe.errors import ConnectionClosed, StateHeld, StorageError
from tests.conftest import wait_until

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import subprocess, sys
from pathlib import Path
from canard_pipe.engine.ownership import Ownership
with Ownership.take(Path(sys.argv[1])) as ownership:
    if "child" in sys.argv:
        child = subprocess.Popen(["sleep", "600"], pass_fds=(ownership.lock_fd,), stdout=subprocess.DEVNULL)
        print(child.pid, flush=True)
    else:
        print("held", flush=True)
    sys.stdin.readline()
"""
FOREIGN = OwnerRecord(
    Identity("another-host", 4711, "100", "another-boot"), counter=7, since="2026-01-02T03:04:05+00:00"
)


class FakeClock:
    """Time that passes only by sleeping, or by hand. ``on_sleep`` is called at each sleep."""

    def __init__(self, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.seconds, self._on_sleep = 1000.0, on_sleep

    def now_us(self) -> int:
        return int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self._on_sleep()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "owner.lock"


@pytest.fixture
def hold(lock):
    """Start processes that hold the state until they get a line (or are killed); returns (process, first line)."""
    started = []

    def start(*words: str) -> tuple[Any, str]:
        process: Any = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(lock), *words], text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def owner_of(lock: Path) -> OwnerRecord:
    record = read_owner(lock)
    assert record is not None
    return record


def put(lock: Path, record: OwnerRecord) -> None:
    with Staged(lock, record) as staged:
        staged.put()


def living(pid: int) -> Identity:
    return replace(Identity.here(), pid=pid, started=process_start(pid) or "")


def test_the_state_of_a_killed_owner_is_taken_at_once_and_its_death_is_told(lock, hold):
    """BUGS 46, 47: no waiting, no unlocking by hand."""
    process, _ = hold()
    process.kill()
    process.wait()
    with Ownership.take(lock, wait_seconds=0) as ownership:
        assert ownership.predecessor is not None
        assert ownership.predecessor.pid == process.pid
        assert ownership.predecessor.host == socket.gethostname()
        assert not ownership.predecessor.alive_here()


def test_an_owner_that_is_only_a_zombie_is_dead(lock, hold):
    process, _ = hold()
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process_start(process.pid) is None)  # not reaped: the process number is still taken
    with Ownership.take(lock, wait_seconds=0) as ownership:
        assert ownership.predecessor is not None
        assert ownership.predecessor.pid == process.pid


def test_a_living_owner_is_named_with_process_host_and_since(lock, hold):
    """BUGS 46."""
    process, _ = hold()
    record = owner_of(lock)
    assert record.alive_here()
    with pytest.raises(StateHeld) as caught:
        Ownership.take(lock, wait_seconds=0.1)
    assert (caught.value.pid, caught.value.host) == (process.pid, socket.gethostname())
    assert caught.value.since == record.since
    assert str(process.pid) in str(caught.value)
    assert caught.value.path == lock.parent


def test_an_owner_that_ends_within_the_wait_is_followed(lock, hold):
    process, _ = hold()
    process.stdin.write("\n")
    process.stdin.flush()
    with Ownership.take(lock, wait_seconds=20) as ownership:
        assert ownership.predecessor is None  # it gave the state back: nothing to close


def test_one_process_cannot_take_a_state_twice(lock):
    with Ownership.take(lock):
        with pytest.raises(StateHeld) as caught:
            Ownership.take(lock, wait_seconds=0)
        assert caught.value.pid == os.getpid()


def test_a_child_that_inherited_the_lock_keeps_the_state_until_it_has_ended(lock, hold):
    """docs/design.md, the launcher: a dead run's commands are ended before a new owner starts its own."""
    process, child = hold("child")
    process.kill()
    process.wait()
    try:
        with pytest.raises(StateHeld) as caught:
            Ownership.take(lock, wait_seconds=0)
        assert caught.value.pid is None  # the dead owner is not named
    finally:
        os.kill(int(child), signal.SIGKILL)
    with Ownership.take(lock, wait_seconds=10) as ownership:
        assert ownership.predecessor is not None
        assert ownership.predecessor.pid == process.pid


def test_giving_back_leaves_the_lock_to_children(lock):
    ownership = Ownership.take(lock)
    child = subprocess.Popen(["sleep", "600"], pass_fds=(ownership.lock_fd,))
    try:
        ownership.release()
        with pytest.raises(StateHeld):
            Ownership.take(lock, wait_seconds=0)
    finally:
        child.kill()
        child.wait()
    Ownership.take(lock, wait_seconds=10).release()


def test_programs_started_in_the_usual_way_do_not_inherit_the_lock(lock):
    ownership = Ownership.take(lock)
    child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        ownership.release()
        Ownership.take(lock, wait_seconds=0).release()
    finally:
        child.kill()
        child.wait()


def test_the_server_is_published_and_withdrawn_and_its_token_not_shown(lock):
    with Ownership.take(lock) as ownership:
        ownership.publish("quack:127.0.0.1:1", "secret")
        record = owner_of(lock)
        assert record == ownership.record
        assert (record.uri, record.token) == ("quack:127.0.0.1:1", "secret")
        assert "secret" not in repr(record)
        ownership.withdraw()
        assert owner_of(lock).token is None
        ownership.publish("quack:127.0.0.1:1", "secret")
    assert "secret" not in record_path(lock).read_text()


def test_renewing_advances_the_counter(lock):
    with Ownership.take(lock) as ownership:
        before = owner_of(lock).counter
        ownership.renew()
        assert owner_of(lock).counter == before + 1


def test_a_state_given_back_leaves_no_predecessor_and_releasing_twice_does_nothing(lock):
    ownership = Ownership.take(lock)
    ownership.release()
    ownership.release()
    assert not owner_of(lock).alive_here()
    with pytest.raises(ConnectionClosed):
        ownership.renew()
    with pytest.raises(ConnectionClosed):
        _ = ownership.lock_fd
    with Ownership.take(lock, wait_seconds=0) as again:
        assert again.predecessor is None


def test_a_process_number_that_is_used_again_is_not_the_owner(lock):
    """Same host, same boot, a living process, but started at another time."""
    reused = replace(living(os.getppid()), started="1")
    record = replace(FOREIGN, identity=reused)
    put(lock, record)
    assert not record.alive_here()
    with Ownership.take(lock, wait_seconds=0) as ownership:
        assert ownership.predecessor == record


def test_an_owner_of_an_earlier_boot_is_dead(lock):
    record = replace(FOREIGN, identity=replace(living(os.getppid()), boot_id="before"))
    put(lock, record)
    assert not record.alive_here()
    with Ownership.take(lock, wait_seconds=0) as ownership:
        assert ownership.predecessor == record


def test_a_living_owner_is_respected_when_its_lock_file_was_removed(lock, hold):
    """BUGS 47: removing lock files by hand is the usual advice elsewhere."""
    process, _ = hold()
    lock.unlink()
    with pytest.raises(StateHeld) as caught:
        Ownership.take(lock, wait_seconds=0)
    assert caught.value.pid == process.pid


def test_a_lock_on_a_file_that_was_just_removed_does_not_count(lock, monkeypatch):
    """Two processes would each hold a lock of that name."""
    really = fcntl.flock

    def removed_before(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        really(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    with Ownership.take(lock) as ownership:
        assert os.path.samestat(os.fstat(ownership.lock_fd), lock.stat())


def test_another_host_is_respected_while_its_counter_advances(lock):
    """docs/design.md: on a network file system the lock may not reach the other host."""
    counters = iter(range(8, 100))
    clock = FakeClock()

    def owner_renews() -> None:
        if clock.seconds % 5 < 1:
            put(lock, replace(FOREIGN, counter=next(counters)))

    clock = FakeClock(owner_renews)
    put(lock, FOREIGN)
    with pytest.raises(StateHeld) as caught:
        Ownership.take(lock, clock=clock)
    assert (caught.value.pid, caught.value.host, caught.value.since) == (4711, "another-host", FOREIGN.since)
    assert clock.seconds <= 1010
    assert owner_of(lock).host == "another-host"


def test_another_host_is_taken_over_after_its_silence(lock):
    clock = FakeClock()
    put(lock, FOREIGN)
    watched: list[OwnerRecord] = []
    with Ownership.take(lock, clock=clock, silence_seconds=60, watching=watched.append) as ownership:
        assert ownership.predecessor == FOREIGN
        assert owner_of(lock).pid == os.getpid()
    assert watched == [FOREIGN]
    assert 1060 <= clock.seconds < 1070


def test_another_host_that_gives_back_meanwhile_is_followed_at_once(lock):
    clock = FakeClock(lambda: put(lock, replace(FOREIGN, released=True)))
    put(lock, FOREIGN)
    with Ownership.take(lock, clock=clock) as ownership:
        assert ownership.predecessor is None
    assert clock.seconds < 1010


def test_an_owner_that_finds_another_one_stops_before_its_next_write(lock):
    clock = FakeClock()
    ownership = Ownership.take(lock, clock=clock)
    ownership.check()
    put(lock, FOREIGN)
    with pytest.raises(StateHeld, match="another-host"):
        ownership.renew()
    for refused in (ownership.check, ownership.renew):
        with pytest.raises(StateHeld):
            refused()
    ownership.release()
    assert read_owner(lock) == FOREIGN  # the other's record stays as it was


def test_an_owner_that_stood_still_looks_before_its_next_write(lock):
    """SIGSTOP or a suspended machine: the other host took over before this one could renew."""
    clock = FakeClock()
    with Ownership.take(lock, clock=clock, renew_seconds=5) as ownership:
        put(lock, FOREIGN)
        clock.seconds += 5
        ownership.check()  # in memory: it renews often enough
        clock.seconds += 60
        with pytest.raises(StateHeld):
            ownership.check()


def test_an_owner_that_stood_still_alone_goes_on(lock):
    clock = FakeClock()
    with Ownership.take(lock, clock=clock) as ownership:
        clock.seconds += 3600
        ownership.check()
        record_path(lock).unlink()  # removed by hand: written again
        ownership.renew()
        assert read_owner(lock) == ownership.record


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_with_the_way_out(lock, monkeypatch, number):
    """BUGS 48: file, cause, and the option that moves only the state."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StorageError, match="--state") as caught:
        Ownership.take(lock)
    assert str(lock) in str(caught.value)
    assert os.strerror(number) in str(caught.value)


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(StorageError, match="absent"):
        Ownership.take(tmp_path / "absent" / "owner.lock")


def test_a_failed_take_leaves_nothing_locked(lock):
    record_path(lock).mkdir()
    with pytest.raises(StorageError):
        Ownership.take(lock)
    record_path(lock).rmdir()
    Ownership.take(lock, wait_seconds=0).release()
