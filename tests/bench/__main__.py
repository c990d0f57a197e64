"""Run all benchmarks: ``python -m tests.bench [NAME ...]``, as ``make bench`` does; docs/speed.md explains them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench import engine, runs, scenarios, shared

FIGURES = {
    bench.__name__: bench
    for bench in (
        engine.spawning, engine.late_steps, engine.claims_beside_history, engine.conflicts, engine.growth,
        shared.sharing, shared.asking, runs.starting, runs.planning, runs.memory,
    )
}


def main(names: list[str]) -> None:
    """Print every figure as soon as it is there."""
    for name in names or [*FIGURES, "scenarios"]:
        with tempfile.TemporaryDirectory(prefix="canard-bench-") as folder:
            print(f"-- {name}", flush=True)
            for line in scenarios.lines(Path(folder)) if name == "scenarios" else FIGURES[name](Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
