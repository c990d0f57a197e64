"""Items of maps from another terminal: status, why, logs, retry and cancel while the run is going."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.program import LOG, canard, start

PIPELINE = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("held", rows=Row, key="sample")

@pipeline.sample(max_failures=1)
def call(sample, ctx):
    return ctx.map("align", align, [(sample.key, lane) for lane in ("L1", "L2", "L3")], key=lambda item: item[1])

def align(item, ctx):
    sample, lane = item
    folder = ctx.step("sort", lambda: ctx.shell(
        "echo at work on {name}; [ ! -e {bad} ] || exit 3; echo $$ > {pid}; while [ -e {hold} ]; do sleep 0.1; done",
        name=sample + lane, bad=HERE / f"bad-{sample}{lane}", hold=HERE / f"hold-{sample}{lane}",
        pid=HERE / f"pid-{sample}{lane}"))
    return lane
"""


@pytest.fixture
def run_of(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose items A/L1 and B/L1 wait for a file to go; A/L2 has failed."""
    (tmp_path / "pipe.py").write_text(PIPELINE)
    (tmp_path / "s.csv").write_text("sample\nA\nB\n")
    for name in ("bad-AL2", "hold-AL1", "hold-BL1"):
        (tmp_path / name).touch()
    run = start(tmp_path, "run", "pipe.py", "s.csv", "--cpus", "6")
    try:
        wait_until(lambda: states(tmp_path).get("A") == {"L1": "running", "L2": "failed", "L3": "done"}, 30.0)
        wait_until((tmp_path / "pid-BL1").exists, 30.0)
        yield run
    finally:
        run.kill()
        run.wait()


@pytest.fixture
def held(run_of: subprocess.Popen[str], tmp_path: Path) -> Path:
    return tmp_path


def states(folder: Path) -> dict[str, dict[str, str]]:
    told = canard(folder, "status", "--json")
    rows = json.loads(told.stdout) if told.returncode == 0 else []
    return {row["sample"]: {item["item"]: item["state"] for item in row["items"]} for row in rows}


def alive(folder: Path, name: str) -> bool:
    return Path(f"/proc/{(folder / f'pid-{name}').read_text().strip()}").exists()


def test_items_are_told_retried_and_cancelled_from_another_terminal(held):
    assert [(row["sample"], row["state"]) for row in json.loads(canard(held, "status", "--json").stdout)] == [
        ("A", "running"), ("B", "running"),
    ]
    assert "1/3" in canard(held, "status").stdout
    told = canard(held, "why", "A").stdout
    assert "align: 3 items: 1 failed, 1 running, 1 done" in told
    assert "item align/L2 is failed" in told
    assert "ended: exit code 3" in told
    assert "item align/L1 is running" in told
    assert canard(held, "logs", "A", "L2").stdout.count("at work on AL2") == 1
    assert canard(held, "logs", "A", "align").stdout.count("at work on") == 3
    assert "no command in a step 'L9'" in canard(held, "logs", "A", "L9").stderr

    refused = canard(held, "retry", "A", "--item", "L3")
    assert (refused.returncode, "--from align makes it anew" in refused.stderr) == (2, True)
    (held / "bad-AL2").unlink()
    retried = canard(held, "retry", "A", "--item", "L2")
    assert retried.returncode == 0, retried.stderr
    wait_until(lambda: states(held)["A"]["L2"] == "done", 30.0)

    assert alive(held, "BL1")
    assert canard(held, "cancel", "B").returncode == 0
    wait_until(lambda: not alive(held, "BL1"), 30.0)
    assert states(held)["B"] == {"L1": "cancelled", "L2": "done", "L3": "done"}

    (held / "hold-AL1").unlink()
    (held / "hold-BL1").unlink()
    wait_until(lambda: "exit status 1" in (held / LOG).read_text(), 30.0)
    rows = {row["sample"]: row["state"] for row in json.loads(canard(held, "status", "--json").stdout)}
    assert rows == {"A": "done", "B": "cancelled"}
    again = canard(held, "retry", "B")
    assert again.returncode == 0, again.stdout + again.stderr
    assert states(held)["B"] == {"L1": "done", "L2": "done", "L3": "done"}


def test_a_sample_that_was_retired_amid_its_map_goes_on_when_it_is_back(run_of, held):
    """Its unfinished items are cancelled with it and made ready with it; done ones are kept."""
    run_of.kill()
    run_of.wait()
    for name in ("bad-AL2", "hold-AL1", "hold-BL1"):
        (held / name).unlink()
    (held / "s.csv").write_text("sample\nA\n")
    assert canard(held, "run", "pipe.py", "s.csv").returncode == 1  # A/L2 had failed for good
    assert states(held)["B"] == {"L1": "cancelled", "L2": "done", "L3": "done"}
    (held / "s.csv").write_text("sample\nA\nB\n")
    assert canard(held, "run", "pipe.py", "s.csv").returncode == 1
    assert states(held)["B"] == {"L1": "done", "L2": "done", "L3": "done"}
    assert len(list(held.glob("work/held/B/align/*/sort/attempt-*"))) == 4  # only L1 was tried once more
    assert canard(held, "retry", "--failed").returncode == 0


def test_item_is_for_one_sample(tmp_path):
    wrong = canard(tmp_path, "retry", "A", "B", "--item", "L1")
    assert (wrong.returncode, "--item is for one sample" in wrong.stderr) == (2, True)
