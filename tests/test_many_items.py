"""A map of 1,000 items with real commands: killed amid it, one item that fails for good, its retry, and a cohort after.

The rules of maps are in tests/engine/test_mapping.py and tests/pipeline/test_items.py.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import duckdb
import pytest

from tests.conftest import wait_until
from tests.program import LOG, canard, start

ITEMS = 1000
KILLED_AT = (150, 400, 700)  # commands that have begun
AT_ONCE = 8

PIPELINE = f"""
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str
    items: int

pipeline = Pipeline("many", rows=Row, key="sample", tries=1)

@pipeline.sample
def one(sample, ctx):
    return sum(ctx.map("square", square, list(range(sample.row.items))))

@pipeline.cohort(after=one)
def together(results, ctx):
    return dict(results)

def square(number, ctx):
    text = "echo {{number}} >> {{log}}; [ {{number}} != 500 ] || [ -e {{mended}} ]; echo {{square}} > out.txt"
    out = ctx.step("square", lambda: ctx.shell(
        text, number=number, square=number * number, log=HERE / "starts", mended=HERE / "mended",
        outputs=["out.txt"], cpus={1 / AT_ONCE}))
    return int((out / "out.txt").read_text())
"""
LINE = ("run", "many.py", "samples.csv", "--cpus", "1", "--slots", "16")


def starts(folder: Path) -> list[int]:
    file = folder / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def has_begun(folder: Path, count: int) -> bool:
    return len(starts(folder)) >= count


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_thousand_items_end_whatever_is_killed_and_one_that_failed_is_retried_alone(tmp_path):
    (tmp_path / "many.py").write_text(PIPELINE)
    (tmp_path / "samples.csv").write_text(f"sample,items\nA,{ITEMS}\nB,3\n")
    for count in KILLED_AT:
        run = start(tmp_path, *LINE)
        wait_until(partial(has_begun, tmp_path, count), 60)
        run.kill()
        run.wait()
    assert start(tmp_path, *LINE).wait(120) == 1, (tmp_path / LOG).read_text()[-2000:]
    # A command that had ended is not run again; the few that were at work at a kill are.
    assert len(starts(tmp_path)) <= ITEMS + 3 + AT_ONCE * len(KILLED_AT)
    why = canard(tmp_path, "why", "A").stdout
    assert f"{ITEMS} items: 1 failed, {ITEMS - 1} done" in why
    assert "item square/500 is failed" in why
    rows = json.loads(canard(tmp_path, "status", "--json").stdout)
    assert {row["function"] + str(row["sample"] or ""): row["state"] for row in rows} == {
        "oneA": "failed", "oneB": "done", "together": "blocked",
    }  # fmt: skip

    (tmp_path / "mended").touch()
    before = len(starts(tmp_path))
    again = canard(tmp_path, "retry", "A", "--item", "500")
    assert again.returncode == 0, again.stdout + again.stderr
    assert starts(tmp_path)[before:] == [500]
    with duckdb.connect(str(tmp_path / ".canard" / "state.duckdb"), read_only=True) as con:
        ended = con.execute("SELECT state, count(*) FROM canard_absurd.items GROUP BY state").fetchall()
        results = con.execute("SELECT result FROM canard_absurd.tasks WHERE name = 'together'").fetchall()
    assert ended == [("done", ITEMS + 3)]
    assert json.loads(results[-1][0]) == {"A": sum(n * n for n in range(ITEMS)), "B": 5}
