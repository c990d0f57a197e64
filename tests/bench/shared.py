"""One state, many workers: in the owner's process, and in processes of their own that ask the owner over Quack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import canard_pipe
from canard_pipe.engine.database import Database
from canard_pipe.engine.remote import RemoteDatabase
from tests.bench.engine import Conflicts, claim_some, three_steps, together
from tests.bench.figures import Figure, low, seconds

STEPS = 3
ROOT = Path(__file__).resolve().parents[2]


def sharing(folder: Path, tasks: int = 400, workers: tuple[int, ...] = (1, 4, 8)) -> Iterator[Figure]:
    """Tasks of three steps that do nothing, by workers of one slot each: threads of the owner's, then processes."""
    for count in workers:
        for name, measure in (("embedded", _embedded), ("served", _served)):
            with canard_pipe.open(folder / f"{name}-{count}.duckdb") as db, Conflicts() as repeated:
                db.spawn_many("job", [None] * tasks)
                taken, messages = measure(db, count)
                assert db.queues()["default"]["completed"] == tasks
            each = f"{tasks / taken:.0f} tasks/s" + (f", {messages / tasks:.2f} messages each" if messages else "")
            yield Figure(f"{name}, {count} workers: a task of {STEPS} steps", taken / tasks * 1000, "ms", None, each)
            yield Figure("  conflicts that cost a retry", repeated.count, "", 0)


def asking(folder: Path, rounds: int = 100, many: int = 64) -> Iterator[Figure]:
    """What one message is, and how many messages things take."""
    token = "token-of-the-bench"
    with canard_pipe.open(folder / "asked.duckdb") as owner, Counted(owner.serve(token=token), token) as db:
        nothing = low(seconds(lambda: db.ask("hello")) for _ in range(rounds))
        yield Figure("a question that does nothing", nothing * 1000, "ms")
        db.spawn("job", id="t")
        claim = db.claim(lease_seconds=600)
        assert claim is not None
        before = db.asked
        taken = [seconds(partial(claim.step, f"s{number}", int)) for number in range(rounds)]
        yield Figure("messages of a step", (db.asked - before) / rounds, "", 1, f"{low(taken) * 1000:.1f} ms")
        db.spawn_many("job", [None] * many)
        before = db.asked
        took = seconds(lambda: db.claim_many(many))
        yield Figure(f"messages of a claim of {many} tasks", db.asked - before, "", 1, f"{took * 1000:.0f} ms")
    with canard_pipe.open(folder / "own.duckdb") as own:
        (held,) = claim_some(own, 1)
        taken = [seconds(partial(held.step, f"s{number}", int)) for number in range(rounds)]
        yield Figure("the same step in the owner's process", low(taken) * 1000, "ms")


class Counted(RemoteDatabase):
    """A connection that counts its messages."""

    asked = 0

    def ask(self, question: str, /, **given: Any) -> Any:
        self.asked += 1
        return super().ask(question, **given)


def _embedded(db: Database, workers: int) -> tuple[float, int]:
    return seconds(lambda: together(db, workers, {"job": three_steps})), 0


def _served(db: Database, workers: int) -> tuple[float, int]:
    token = "token-of-the-bench"
    uri = db.serve(token=token)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.shared", uri], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "CANARD_TOKEN": token},
        )
        for _ in range(workers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        while db.queues()["default"]["ready"] or db.queues()["default"]["running"]:
            sleep(0.01)
        taken = perf_counter() - began
        return taken, sum(json.loads(process.communicate(timeout=60)[0]) for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        db.stop_serving()


def _work(uri: str) -> int:
    with Counted(uri, os.environ["CANARD_TOKEN"]) as db:
        print("ready", flush=True)
        sys.stdin.readline()
        canard_pipe.work(db, {"job": three_steps}, idle_timeout=0)
        return db.asked


if __name__ == "__main__":
    print(_work(sys.argv[1]))
