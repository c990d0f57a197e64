"""A database whose commands are jobs of a fake Slurm, in rounds by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.engine.worker import Worker
from canard_pipe.execution.context import contexts
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget
from canard_pipe.execution.slurm.executor import Rounds, SlurmExecutor
from canard_pipe.execution.slurm.settings import SlurmSettings
from canard_pipe.pipeline.policy import FailurePolicy
from tests.execution.slurm.fakes import FakeSlurm


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now_us(self) -> int:
        return round(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Bench:
    """A database whose commands are jobs of a fake Slurm, in rounds by hand."""

    def __init__(self, root: Path, slurm: FakeSlurm, **settings: Any) -> None:
        self.slurm, self.clock, self.notes = slurm, Clock(), list[str]()
        self.settings = SlurmSettings(**settings)
        self.local = LocalExecutor(Budget(1, 1 << 30, monotonic=self.clock.monotonic), clock=self.clock)
        self._root = root
        self.open()

    def open(self) -> None:
        """A head begins."""
        self.database = Database(
            self._root / "state.duckdb", root=self._root, clock=self.clock, pulse_seconds=None,
            claim_type=lambda database, grant: self._make(database, grant),
        )  # fmt: skip
        executor = SlurmExecutor(
            self.database, self.slurm, self.settings, local=self.local, environ={}, changed=lambda: None,
            note=self.notes.append, clock=self.clock,
        )  # fmt: skip
        self._make = contexts(executor, self._root / "work", environ={})
        self.rounds = Rounds(
            self.database, self.slurm, self.settings, note=self.notes.append, clock=self.clock
        )

    def dies(self) -> None:
        """The head is gone; the next one begins."""
        self.database.close()
        self.open()

    def work(self, handler: Callable[[Any, Any], Any]) -> None:
        """Run what is ready, to its sleep or its end."""
        self.database.wake()
        policy = FailurePolicy(lambda: 0.5)
        Worker(self.database, {"sample": handler}, describe=policy, slots=4).work(idle_timeout=0)

    def round(self, seconds: float = 15.0, **options: Any) -> None:
        self.clock.sleep(seconds)
        self.rounds.round(**{"submitting": True, **options})

    def states(self) -> list[tuple[Any, ...]]:
        _, rows = self.database.store.sql(
            "SELECT state, live, to_cancel, cause FROM canard_absurd.jobs ORDER BY recorded_at, attempt"
        )
        return rows


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(slurm: FakeSlurm | None = None, **settings: Any) -> Bench:
        made.append(Bench(tmp_path, slurm or FakeSlurm(), **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.database.close()
