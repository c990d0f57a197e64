"""Real processes and real disks: a worker that stood still, a file system that is full, a copy made by force."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.errors import CanardError, ConflictError, LeaseLost, StateHeld, StorageError
from tests.conftest import absent, wait_until
from tests.engine.conftest import TOKEN, attempts, claimed, row

ROOT = Path(__file__).resolve().parents[2]
COPIES = 30


def python(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env={**os.environ, "CANARD_TOKEN": TOKEN},
        stdout=subprocess.PIPE, text=True,
    )


def test_what_a_worker_writes_after_it_was_stopped_and_its_task_taken_over_is_refused(tmp_path):
    """G4, S11, S30: SIGSTOP beyond the lease, a takeover, SIGCONT; nothing of the old attempt is written."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as db:
        db.spawn("job", None, id="t")
        worker = python("-m", "tests.laws.stopped_worker", db.serve(token=TOKEN), tmp_path)
        try:
            wait_until((tmp_path / "started").exists, 60)
            os.kill(worker.pid, signal.SIGSTOP)
            taken: list[Claim] = []

            def take_over() -> bool:
                taken.extend(db.claim_many(1, lease_seconds=600))
                return bool(taken)

            wait_until(take_over, 60, every_seconds=0.1)
            (new,) = taken
            assert (new.attempt, new.failures) == (2, 1)
            before = row(db)
            (tmp_path / "go").touch()
            os.kill(worker.pid, signal.SIGCONT)
            said = worker.communicate(timeout=60)[0].splitlines()
        finally:
            worker.kill()
            worker.wait()
        tries = ("heartbeat", "step", "sleep", "fail", "complete")
        assert said == [*(f"{what} LeaseLost" for what in tries), "outcome lost"]
        assert row(db) == before
        assert new.step("first", lambda: 2) == 1  # as the first attempt saved it
        assert new.step("second", lambda: "new") == "new"
        new.complete("new")
        assert db.result("t") == "new"
        assert attempts(db) == [(1, "expired"), (2, "completed")]


@contextmanager
def small_file_system(folder: Path) -> Iterator[Callable[[], Callable[[], object]]]:
    """A file system of its own; what is yielded fills it and returns what makes room again."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        absent("the right to mount a file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        absent("the right to mount a file system")
    ballast = folder / "ballast"

    def fill() -> Callable[[], object]:
        ballast.write_bytes(bytes(20 << 20))
        return ballast.unlink

    try:
        yield fill
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def short_files(_folder: Path) -> Iterator[Callable[[], Callable[[], object]]]:
    """The same by a limit on this process's files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def limit() -> Callable[[], object]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
        return end

    try:
        yield limit
    finally:
        end()


@pytest.mark.parametrize("full", [small_file_system, short_files])
def test_a_full_disk_under_the_database_is_said_and_costs_nothing(tmp_path, full):
    """G8, G10, S34: no conflict and no lost lease; what was acknowledged is there; it goes on when there is room."""
    folder = tmp_path / "small"
    folder.mkdir()
    with full(folder) as fill:
        with Database(folder / "state.duckdb", root=folder, pulse_seconds=None) as db:
            db.spawn_many("job", [1, 2], ids=["t", "u"])
            claim = claimed(db, lease_seconds=3600)
            make_room = fill()
            saved: dict[str, str] = {}
            error: StorageError | None = None
            while error is None:
                name, text = f"s{len(saved)}", random.Random(len(saved)).randbytes(100_000).hex()
                try:
                    saved[name] = claim.step(name, lambda text=text: text)
                except StorageError as failed:
                    error = failed
                assert len(saved) < 500, "it never got full"
            assert not isinstance(error, ConflictError | LeaseLost)
            assert row(db)["failures"] == 0
            make_room()
            saved[name] = claim.step(name, lambda: "again")
            claim.complete("done")
            assert db.tasks(id="u")[0].state == "ready"
        with Database(folder / "state.duckdb", root=folder, pulse_seconds=None) as db:
            record = db.inspect("t")
            assert record is not None
            assert (record.state, record.attempt, record.failures) == ("completed", 1, 0)
            assert {checkpoint.name: checkpoint.value for checkpoint in record.checkpoints} == saved
            claimed(db).complete()


BUSY = """
import sys
from pathlib import Path
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
path = Path(sys.argv[1])
with Database(path, root=path.parent) as db:
    db.store.connection.execute("SET checkpoint_threshold = '300KB'")  # so that the file itself changes, too
    print("busy", flush=True)
    number = 0
    while True:
        number += 1
        db.spawn_many("job", ["x" * 3000, 2], ids=[f"{number}a", f"{number}b"])
        claim = db.claim()
        claim.step("one", lambda: "y" * 2000)
        claim.step("two", lambda: 2)
        claim.complete()
"""


def test_a_raw_copy_of_an_open_file_opens_to_a_committed_state_or_is_refused(tmp_path):
    """G26: by another process, since the owner never touches its file by other means. A backup is the right way."""
    folder = tmp_path / "open"
    folder.mkdir()
    busy = python("-c", BUSY, folder / "state.duckdb")
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "busy\n"
        seen = [state_of_copy(folder, tmp_path / str(number), number % 2 == 0) for number in range(COPIES)]
        whole = tmp_path / "whole"
        shutil.copytree(folder, whole)
        with pytest.raises(StateHeld, match=str(busy.pid)):  # what says who owns it was copied along
            Database(whole / "state.duckdb", root=whole, wait_seconds=0)
    finally:
        busy.kill()
        busy.communicate()
    opened = [tasks for tasks in seen if tasks is not None]
    assert opened == sorted(opened)
    assert len(opened) >= COPIES / 2
    assert opened[-1] > opened[0]


def state_of_copy(folder: Path, copy: Path, log_first: bool) -> int | None:
    """Copy file and log, in this order or the other; return how many tasks are there, None if it is refused."""
    copy.mkdir()
    for name in sorted(("state.duckdb", "state.duckdb.wal"), reverse=log_first):
        with contextlib.suppress(FileNotFoundError):  # the log goes at each checkpoint
            shutil.copy(folder / name, copy / name)
    try:
        with Database(copy / "state.duckdb", root=copy) as db:
            ((tasks, torn, steps),) = db.store.sql(
                "SELECT count(*), count(*) FILTER (WHERE state = 'completed' AND 2 <> (SELECT count(*) "
                "FROM canard_absurd.checkpoints c WHERE c.task_seq = t.seq)), "
                "(SELECT sum(strlen(value)) FROM canard_absurd.checkpoints) FROM canard_absurd.tasks t"
            )[1]
    except CanardError:
        return None
    assert tasks % 2 == 0, "half of a transaction"
    assert torn == 0
    assert tasks == 0 or steps is not None
    return int(tasks)
