"""The scenarios of SEMANTICS section 6 as one table; each in a process, so that its peak memory is its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import canard_pipe
from canard_pipe.engine.claim import Claim
from tests.bench.engine import Conflicts, make_finished, together
from tests.bench.figures import seconds


@dataclass(frozen=True, slots=True)
class Scenario:
    """``callback_ms`` is how long the handler's step takes; the rest is what it is called."""

    name: str
    tasks: int = 40
    workers: int = 1
    steps: int = 1
    step_bytes: int = 10
    callback_ms: float = 0.0
    input_rows: int = 0
    finished: int = 0


ALL = (
    Scenario("baseline"),
    *(Scenario(f"{workers} workers", workers=workers) for workers in (2, 4, 8)),
    Scenario("50 ms callback, 4 workers", workers=4, callback_ms=50),
    *(Scenario(f"{steps} checkpoints", steps=steps, tasks=4) for steps in (50, 200)),
    Scenario("20 checkpoints of 80 kB", steps=20, step_bytes=80_000, tasks=4),
    Scenario("10,000-row input", input_rows=10_000, tasks=4),
    Scenario("100,000 finished rows", finished=100_000),
)
HEAD = (f"{'scenario':28} {'spawn ms':>9} {'elapsed s':>9} {'tasks/s':>8} {'over ms':>8} {'confl':>6} {'died':>5} "
        f"{'peak MB':>8} {'file MB':>8}")

LINE = (" {spawn:9.2f} {elapsed:9.3f} {rate:8.1f} {overhead:8.2f} {conflicts:6} {died:5} {peak:8.0f} {file:8.1f}")


def run(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Run it here; return the columns by name."""
    path = folder / "scenario.duckdb"
    value = "x" * scenario.step_bytes
    given = [{"row": number, "sample": f"s{number}"} for number in range(scenario.input_rows)]

    def callback() -> str:
        time.sleep(scenario.callback_ms / 1000)
        return value

    def handler(_given: object, ctx: Claim) -> None:
        for number in range(scenario.steps):
            ctx.step(f"s{number}", callback)

    with canard_pipe.open(path) as db, Conflicts() as repeated:
        if scenario.finished:
            make_finished(db, scenario.finished)
        spawned = seconds(lambda: db.spawn_many("job", [given] * scenario.tasks))
        began_us = db.clock.now_us()
        died = together(db, scenario.workers, {"job": handler})
        ((last_us,),) = db.store.sql("SELECT epoch_us(max(ended_at)) FROM canard_absurd.attempts")[1]
    elapsed = (last_us - began_us) / 1e6
    busy = scenario.callback_ms / 1000 * scenario.steps * scenario.tasks / scenario.workers
    return {
        "spawn": spawned / scenario.tasks * 1000, "elapsed": elapsed, "rate": scenario.tasks / elapsed,
        "overhead": (elapsed - busy) / scenario.tasks * 1000, "conflicts": repeated.count, "died": died,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "file": path.stat().st_size / 2**20,
    }


def lines(folder: Path, scenarios: tuple[Scenario, ...] = ALL) -> Iterator[str]:
    """Yield the table, line by line."""
    yield HEAD
    for number, scenario in enumerate(scenarios):
        own = folder / f"scenario-{number}"
        own.mkdir()
        call = [sys.executable, "-m", "tests.bench.scenarios", json.dumps(asdict(scenario)), str(own)]
        found = json.loads(subprocess.run(call, capture_output=True, check=True, text=True).stdout)
        yield scenario.name.ljust(28) + LINE.format_map(found)


if __name__ == "__main__":
    print(json.dumps(run(Scenario(**json.loads(sys.argv[1])), Path(sys.argv[2]))))
