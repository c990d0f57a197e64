"""serve and worker as a user calls them: workers of other processes take samples of a run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import duckdb
import pytest

from canard_pipe.engine import schema
from tests.conftest import wait_until
from tests.program import LOG, canard, start

PIPELINE = """
import os
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("shared", rows=Row, key="sample")

@pipeline.once
def reference(params, ctx):
    return ctx.step("reference", lambda: "made")

@pipeline.sample
def each(sample, ctx):
    out = ctx.step(
        "count", lambda: ctx.shell("sleep 0.3; echo {key} > out.txt", key=sample.key, outputs=["out.txt"]))
    ctx.step("who", os.getpid)
    return ctx.publish({"out.txt": out / "out.txt"})

@pipeline.cohort(after=each)
def together(results, ctx):
    return len(list(results))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "samples.csv").write_text("sample\n" + "\n".join(f"S{at}" for at in range(40)) + "\n")
    return tmp_path


def owner(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / ".canard" / "owner.json").read_text())
    return found


def listens(folder: Path) -> bool:
    return (folder / ".canard" / "owner.json").exists() and bool(owner(folder)["uri"])


def test_a_worker_joins_a_going_run_and_ends_with_it(folder):
    run = start(folder, "run", "pipeline.py", "samples.csv", "--slots", "1", "--cpus", "1")
    wait_until(lambda: listens(folder), 30)
    token = owner(folder)["token"]
    worker = canard(folder, "worker", "--slots", "4", "--cpus", "4", seconds=90)
    assert worker.returncode == 0, worker.stderr
    assert run.wait(60) == 0, (folder / LOG).read_text()
    assert sorted(path.name for path in (folder / "results").iterdir()) == sorted(f"S{at}" for at in range(40))
    workers = "SELECT count(DISTINCT value::VARCHAR) AS n FROM canard_absurd.task_checkpoints WHERE name = 'who'"
    assert json.loads(canard(folder, "sql", workers, "--json").stdout)[0] == {"n": 2}
    (run_row,) = json.loads(canard(folder, "sql", "SELECT versions, host FROM canard_absurd.runs", "--json").stdout)
    versions = json.loads(run_row["versions"])
    assert (versions["duckdb"], versions["quack"]) == (duckdb.__version__, duckdb.__version__)
    assert (versions["schema"], run_row["host"]) == (schema.VERSION, os.uname().nodename)
    texts = [worker.stdout, worker.stderr, (folder / LOG).read_text()]
    logs = [path.read_text(errors="replace") for path in (folder / "work").rglob("*") if path.is_file()]
    assert not any(token in text for text in [*texts, *logs, (folder / ".canard" / "status.json").read_text()])


def test_a_worker_takes_over_what_a_killed_run_has_left_once_somebody_serves(folder):
    """The state of a run that was killed is served; workers go on with its samples and survive a restart."""
    run = start(folder, "run", "pipeline.py", "samples.csv", "--slots", "2", "--cpus", "2")
    wait_until(lambda: listens(folder) and len(list(folder.glob("results/*/out.txt"))) >= 2, 60)
    run.kill()
    run.wait()
    first = start(folder, "serve")
    wait_until(lambda: "serving" in (folder / LOG).read_text(), 30)
    worker = start(folder, "worker", "--slots", "2", "--cpus", "2", "--wait", "30")
    wait_until(lambda: len(list(folder.glob("results/*/out.txt"))) >= 6, 60)
    first.kill()
    first.wait()
    second = start(folder, "serve")
    wait_until(lambda: len(list(folder.glob("results/*/out.txt"))) == 40, 100)
    assert worker.poll() is None
    for process in (worker, second):
        process.send_signal(signal.SIGTERM)
    assert worker.wait(40) == 0, (folder / LOG).read_text()
    assert second.wait(40) == 0
    assert canard(folder, "run", "pipeline.py", "samples.csv").returncode == 0


def test_the_other_commands_answer_within_a_second_while_others_work(folder):
    run = start(folder, "run", "pipeline.py", "samples.csv", "--slots", "2")
    wait_until(lambda: listens(folder), 30)
    for line in (["status"], ["why", "S0"], ["sql", "SELECT 1"], ["cancel", "S39"], ["retry", "S39"]):
        began = time.monotonic()
        answer = canard(folder, *line)
        print(line[0], f"{time.monotonic() - began:.2f} s")
        assert answer.returncode == 0, answer.stderr
    assert run.wait(90) == 0


@pytest.mark.parametrize(("given", "says"), [
    (["serve", "--bind", "0.0.0.0:9494"], "--beyond-this-machine"),
    (["serve", "--bind", "nowhere"], "HOST:PORT"),
    (["worker", "--connect", "quack:127.0.0.1:9"], "CANARD_TOKEN"),
    (["worker", "--connect", "quack:127.0.0.1:9", "--token-file", "absent"], "cannot be read"),
    (["worker"], "no run or server listens"),
])
def test_what_is_wrong_is_told_with_the_way_out(folder, given, says):
    found = canard(folder, *given)
    assert found.returncode == 2
    assert says in found.stderr
