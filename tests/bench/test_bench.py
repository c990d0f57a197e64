"""Each benchmark can be run: with small numbers, and without a look at the time it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench import __main__, engine, runs, scenarios, shared
from tests.bench.figures import Figure

SMALL: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "spawning": lambda folder: engine.spawning(folder, tasks=20),
    "late_steps": lambda folder: engine.late_steps(folder, steps=12),
    "claims_beside_history": lambda folder: engine.claims_beside_history(folder, finished=50),
    "conflicts": lambda folder: engine.conflicts(folder, tasks=4, workers=2),
    "growth": lambda folder: engine.growth(folder, few=2, many=4),
    "sharing": lambda folder: shared.sharing(folder, tasks=3, workers=(2,)),
    "asking": lambda folder: shared.asking(folder, rounds=2, many=3),
    "starting": lambda folder: runs.starting(folder, rounds=1),
    "planning": lambda folder: runs.planning(folder, samples=4),
    "memory": lambda folder: runs.memory(folder, few=2, many=4),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures_something(tmp_path, name):
    figures = list(SMALL[name](tmp_path))
    assert figures
    assert all(figure.name in str(figure) for figure in figures)


def test_every_benchmark_is_tried():
    assert SMALL.keys() == __main__.FIGURES.keys()


def test_a_scenario_gives_all_columns(tmp_path):
    few = (scenarios.Scenario("few", tasks=3, workers=2, steps=2, input_rows=2, finished=5, callback_ms=1),)
    head, line = scenarios.lines(tmp_path, few)
    assert head == scenarios.HEAD
    assert line.startswith("few ")
    assert line.split()[-3] == "0"  # workers that died


def test_a_figure_says_whether_its_goal_is_met():
    assert "met" in str(Figure("a", 1.0, "s", 2.0))
    assert "MISSED" in str(Figure("a", 3.0, "s", 2.0))
