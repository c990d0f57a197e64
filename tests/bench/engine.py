"""The engine by itself: what grows with history, with steps and with the number of tasks, as ratios."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import canard_pipe
from canard_pipe.engine.attempt import Handler
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.engine.reading_ahead import Ahead
from canard_pipe.engine.worker import work
from tests.bench.figures import Figure, low, seconds


def claims_beside_history(folder: Path, finished: int = 1_000_000) -> Iterator[Figure]:
    """A claim, a step and an end where many tasks have ended, against none; in alternating rounds."""
    with canard_pipe.open(folder / "empty.duckdb") as empty, canard_pipe.open(folder / "full.duckdb") as full:
        make_finished(full, finished)
        claim: dict[Database, list[float]] = {empty: [], full: []}
        step: dict[Database, list[float]] = {empty: [], full: []}
        for db in (empty, full):
            db.spawn_many("job", [None] * 60)
        for _ in range(60):
            for db in (empty, full):
                began = perf_counter()
                (held,) = db.claim_many(1, ahead=True)
                claim[db].append(perf_counter() - began)
                step[db].append(seconds(partial(held.step, "a", int)))
                held.complete()
        name = f"with {finished:,} finished tasks / with none"
        yield Figure(f"claim {name}", low(claim[full]) / low(claim[empty]), "x", 1.3)
        yield Figure(f"step {name}", low(step[full]) / low(step[empty]), "x", 1.3)
        eight = {db: claim_some(db, 8) for db in (empty, full)}
        renewal: dict[Database, list[float]] = {empty: [], full: []}
        for _ in range(20):
            for db in (empty, full):
                renewal[db].append(seconds(partial(db.renew, eight[db])))
        yield Figure(f"8 leases renewed at once {name}", low(renewal[full]) / low(renewal[empty]), "x", 1.3,
                     f"{low(renewal[full]) * 1000:.1f} ms")
        look = {db: low(seconds(partial(read_candidates, db)) for _ in range(20)) for db in (empty, full)}
        yield Figure(f"look for candidates {name}", look[full] / look[empty], "x", None,
                     f"{look[full] * 1000:.1f} ms, once per 64 claims or 0.1 s")


def claim_some(db: Database, count: int) -> list[Claim]:
    """Make tasks and claim them."""
    db.spawn_many("job", [None] * count)
    return db.claim_many(count)


def read_candidates(db: Database) -> object:
    """Do what a worker does once for many claims."""
    now_us = db.clock.now_us()
    return Ahead().take(
        1, None, db.clock,
        lambda most: db.query("claim_candidates", queue="default", most=most, now_us=now_us, names=None, ids=None),
    )


def make_finished(db: Database, count: int) -> None:
    """Insert finished tasks as if they had been worked on."""
    db.store.sql(
        "INSERT INTO canard_absurd.tasks (id, seq, name, queue, state, priority, attempt, failures, max_failures, "
        "available_at, created_at, updated_at, version, input, result) "
        "SELECT 'old' || i, nextval('canard_absurd.task_seq'), 'job', 'default', 'completed', 0, 1, 0, 3, "
        f"now()::TIMESTAMP, now()::TIMESTAMP, now()::TIMESTAMP, 5, 'null', 'null' FROM range({count}) r(i)"
    )
    db.store.sql("CHECKPOINT")


def late_steps(folder: Path, steps: int = 1000) -> Iterator[Figure]:
    """The last steps of a task against its first."""
    with canard_pipe.open(folder / "steps.duckdb") as db:
        db.spawn("job")
        claim = db.claim(lease_seconds=600)
        assert claim is not None
        taken = [seconds(partial(claim.step, f"s{number}", int)) for number in range(steps)]
        claim.complete()
    edge = max(5, steps // 20)
    yield Figure(f"step {steps:,} of a task / step 1", low(taken[-edge:]) / low(taken[:edge]), "x", 1.2,
                 f"{low(taken[:edge]) * 1000:.2f} ms the first")


def spawning(folder: Path, tasks: int = 10_000) -> Iterator[Figure]:
    """Many tasks in one transaction, and again, when all are known."""
    with canard_pipe.open(folder / "spawn.duckdb") as db:
        ids = [f"t{number}" for number in range(tasks)]
        for name in ("spawned", "spawned again"):
            taken = seconds(lambda: db.spawn_many("job", [{"sample": id} for id in ids], ids=ids))
            yield Figure(f"{tasks:,} tasks {name}", taken, "s", 1.0)


class Conflicts(logging.Handler):
    """Counts the conflicts that the writer repeats."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "write conflict" in record.msg

    def __enter__(self) -> Conflicts:
        log = logging.getLogger("canard_pipe.engine.writer")
        self._before = log.level
        log.setLevel(logging.DEBUG)
        log.addHandler(self)
        return self

    def __exit__(self, *_error: object) -> None:
        log = logging.getLogger("canard_pipe.engine.writer")
        log.removeHandler(self)
        log.setLevel(self._before)


def conflicts(folder: Path, tasks: int = 200, workers: int = 8) -> Iterator[Figure]:
    """Workers side by side on one file: what they undo for one another."""
    with canard_pipe.open(folder / "conflicts.duckdb") as db, Conflicts() as repeated:
        db.spawn_many("job", [None] * tasks)
        together(db, workers, {"job": lambda _given, ctx: ctx.step("a", lambda: 1)})
        yield Figure(f"conflicts of {workers} workers per task", repeated.count / tasks, "", 0.05)


def together(db: Database, workers: int, handlers: dict[str, Handler]) -> int:
    """Let workers of one slot each drain what is there; return how many of them died."""
    died: list[BaseException] = []

    def one() -> None:
        try:
            work(db, handlers, idle_timeout=0)
        except BaseException as error:
            died.append(error)

    threads = [threading.Thread(target=one) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(died)


def growth(folder: Path, few: int = 500, many: int = 2000) -> Iterator[Figure]:
    """The size of the file per task of three steps, closed, for few and for many tasks."""
    sizes = []
    for tasks in (few, many):
        path = folder / f"growth-{tasks}.duckdb"
        with canard_pipe.open(path) as db:
            db.spawn_many("job", [{"sample": f"s{number}"} for number in range(tasks)])
            work(db, {"job": three_steps}, slots=8, idle_timeout=0)
        sizes.append(path.stat().st_size / tasks)
    yield Figure(f"file per task, {many:,} tasks / {few:,}", sizes[1] / sizes[0], "x", 1.2,
                 f"{sizes[1] / 1024:.1f} KiB per task")


def three_steps(_given: object, ctx: Claim) -> None:
    """Save three small values."""
    for name in "abc":
        ctx.step(name, lambda name=name: name)
