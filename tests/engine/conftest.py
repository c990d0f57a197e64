"""What the engine's tests share: a clock to turn by hand, databases on it, and statements that fail on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.engine.remote import RemoteDatabase
from canard_pipe.engine.store import Store
from canard_pipe.engine.tasks import Tasks

TOKEN = "token-of-the-engines-tests"
START_US = 1_790_000_000_000_000


class FakeClock:
    """Time that passes only by :meth:`advance`; :meth:`set` changes wall time alone, as a person sets a clock."""

    def __init__(self) -> None:
        self.wall_us, self.seconds = START_US, 1000.0

    def now_us(self) -> int:
        return self.wall_us

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall_us += round(seconds * 1e6)

    def set(self, seconds: float) -> None:
        self.wall_us += round(seconds * 1e6)


class Faults:
    """An ``intercept`` that counts statements and makes the next one of a name fail, before or after it is executed.

    ``between`` holds actions to be done once, just before a statement.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.planned: dict[str, str] = {}
        self.between: dict[str, Callable[[], object]] = {}
        self.error: Callable[[], BaseException] = lambda: duckdb.IOException("IO Error: the disk is gone")

    def __call__(self, name, execute):
        self.names.append(name)
        action = self.between.pop(name, None)
        if action is not None:
            action()
        moment = self.planned.pop(name, None)
        if moment == "before":
            raise self.error()
        rows = execute()
        if moment == "after":
            raise self.error()
        return rows


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def faults() -> Faults:
    return Faults()


class Served(RemoteDatabase):
    """A database connected to an owner, which the test can look into, too."""

    def __init__(self, owner: Database, clock: FakeClock) -> None:
        self.owner = owner
        super().__init__(owner.serve(token=TOKEN), TOKEN, clock=clock)

    @property
    def store(self) -> Store:
        """The owner's own, for tests to look at what is stored."""
        return self.owner.store


def owner_of(db: Tasks) -> Database:
    """Return the database that has the file open: ``db`` itself, or the one that it is connected to."""
    found = getattr(db, "owner", db)
    assert isinstance(found, Database)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of ``db`` in both modes, unless it is marked ``embedded`` (with the reason)."""
    if "mode" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("embedded")
        assert alone is None or alone.args, f"{metafunc.definition.name}: why is it only about the owner?"
        metafunc.parametrize("mode", ["embedded", "served"] if alone is None else ["embedded"])


@pytest.fixture
def db(mode: str, tmp_path: Path, clock: FakeClock, faults: Faults) -> Iterator[Tasks]:
    """A database on which the test's clock runs: this process owns it, or is connected to its owner over Quack."""
    with Database(None, root=tmp_path, clock=clock, intercept=faults, pulse_seconds=None) as database:
        if mode == "embedded":
            yield database
        else:
            with Served(database, clock) as connected:
                faults.names.clear()  # of the greeting
                yield connected


@pytest.fixture
def reopen(tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Database]]:
    """Open the file state.duckdb anew, closing what was open before."""
    opened: list[Database] = []

    def open_again(**options) -> Database:
        for database in opened:
            database.close()
        path = tmp_path / "state.duckdb"
        database = Database(path, root=tmp_path, **({"clock": clock, "pulse_seconds": None} | options))
        opened.append(database)
        return database

    yield open_again
    for database in opened:
        database.close()


def claimed(db: Database, **options) -> Claim:
    """Spawn nothing; claim what is eligible, which must be there."""
    claim = db.claim(**options)
    assert claim is not None
    return claim


def start(db: Database, id: str = "t", *, lease_seconds: float = 30.0, **options) -> Claim:
    """Spawn a task and claim it."""
    db.spawn("job", None, id=id, **options)
    claim = claimed(db, lease_seconds=lease_seconds)
    assert claim.id == id
    return claim


def row(db: Database, id: str = "t") -> dict[str, Any]:
    """Return the whole row of a task."""
    names, rows = db.store.sql(f"SELECT * FROM canard_absurd.tasks WHERE id = '{id}'")
    (found,) = rows
    return dict(zip(names, found, strict=True))


def attempts(db: Database, id: str = "t") -> list[tuple[int, str]]:
    """Return number and outcome of the ended attempts of a task."""
    return db.store.sql(
        "SELECT a.attempt, a.outcome FROM canard_absurd.attempts a JOIN canard_absurd.tasks t ON t.seq = a.task_seq "
        f"WHERE t.id = '{id}' ORDER BY ALL"
    )[1]


def steps(db: Database, id: str = "t") -> list[tuple[str, str]]:
    """Return name and value of the saved checkpoints of a task, in saved order."""
    return db.store.sql(
        "SELECT name, value::VARCHAR FROM canard_absurd.task_checkpoints "
        f"WHERE task_id = '{id}' ORDER BY ordinal"
    )[1]
