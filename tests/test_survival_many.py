"""Many samples while everything that works on them is killed at random: the run, its launcher, its children, the tools.

150 samples by default; ``make survival`` takes 1,000 (CANARD_SURVIVAL says how many).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import duckdb
import psutil
import pytest

from tests.conftest import wait_until
from tests.program import LOG, start

SAMPLES = int(os.environ.get("CANARD_SURVIVAL") or 150)
LEAST_HITS = 5
SEED = 20261201
POINTS = ("tool", "grandchild", "checker", "launcher", "run", "run and launcher")

PIPELINE = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow, Tries

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

# A tool that somebody kills is no fault of its sample here.
pipeline = Pipeline("many", rows=Row, key="sample", tries=Tries({"any": 1000}, first="0.01s", longest="0.1s"))

def tool(ctx, step, *args, **options):
    return ctx.process(["bash", HERE / "tool.sh", HERE / "starts", ctx.key, step, *args], cpus=0.2, **options)

@pipeline.sample
def one(sample, ctx):
    first = ctx.step("first", lambda: tool(ctx, "first", outputs=["out.txt"]) / "out.txt")
    second = ctx.step("second", lambda: tool(ctx, "second", first, outputs=["out.txt"]) / "out.txt")
    packed = ctx.step("pack", lambda: tool(ctx, "pack", second, outputs=["out.txt", "out.gz"]))
    ctx.publish({"out.gz": packed / "out.gz", "qc/out.txt": first})

@pipeline.cohort(after=one)
def together(results, ctx):
    keys = " ".join(results)
    made = ctx.step("join", lambda: tool(ctx, "join", outputs=["out.txt"]) / "out.txt")
    ctx.publish({"all.txt": made})
"""
# Notes that it has begun, in one write; leaves time to be killed; its work is done by a child. The last sample waits
# until everything was killed often enough.
TOOL = """
log=$1; sample=$2; step=$3; shift 3
printf '%s %s %s\\n' "$EPOCHREALTIME" "$sample" "$step" >> "$log"
sleep 0.0$((RANDOM % 6 + 2)) & wait $!
[ "$sample" != LAST ] || while ! [ -e "${log%/*}/enough" ]; do sleep 0.05; done
{ echo "$sample $step"; [ $# = 0 ] || cat "$1"; } > out.txt
[ "$step" != pack ] || gzip -n < out.txt > out.gz
"""


def lay_out(folder: Path) -> None:
    folder.mkdir()
    (folder / "many.py").write_text(PIPELINE)
    (folder / "tool.sh").write_text(TOOL.replace("LAST", f"s{SAMPLES - 1}"))
    (folder / "samples.csv").write_text("sample\n" + "".join(f"s{number}\n" for number in range(SAMPLES)))


def results(folder: Path) -> dict[str, bytes]:
    place = folder / "results"
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def find(point: str, run: subprocess.Popen[str], rng: random.Random) -> list[psutil.Process]:
    """Return the processes to kill at a point; none if nothing is there just now."""
    with contextlib.suppress(psutil.Error):
        me = psutil.Process(run.pid)
        children = {child: " ".join(child.cmdline()) for child in me.children()}
        if point == "checker":
            return [child for child, line in children.items() if "pipeline.checker" in line][:1]
        launchers = [child for child, line in children.items() if "launcher.py" in line]
        tools = [each for launcher in launchers for each in launcher.children()]
        if not tools:  # a kill while nothing is at work shows little
            return []
        grandchildren = [child for each in tools for child in each.children()] if point == "grandchild" else []
        return {
            "run": [me], "launcher": launchers, "run and launcher": [*launchers, me],
            "tool": [rng.choice(tools)], "grandchild": grandchildren[:1],
        }[point]  # fmt: skip
    return []


def kill(processes: list[psutil.Process]) -> bool:
    """Kill them; tell whether all of them were alive."""
    try:
        for process in processes:
            process.send_signal(signal.SIGKILL)
    except psutil.Error:
        return False
    return bool(processes)


def executions_of_saved_steps(folder: Path) -> list[str]:
    """The commands that began after the step that they belong to was saved."""
    with duckdb.connect(str(folder / ".canard" / "state.duckdb"), read_only=True) as con:
        rows = con.execute(
            "SELECT s.sample, c.name, epoch_us(c.saved_at) FROM canard_absurd.samples s"
            " JOIN canard_absurd.checkpoints c USING (task_seq) WHERE c.archived_at IS NULL"
        ).fetchall()
    saved = {(sample, step): at for sample, step, at in rows}
    late = []
    for line in (folder / "starts").read_text().splitlines():
        at, sample, step = line.split()
        if int(float(at) * 1e6) > saved[sample, step]:
            late.append(line)
    return late


@pytest.mark.slow
@pytest.mark.timeout(max(300, SAMPLES * 2))
def test_many_samples_finish_whatever_is_killed_and_saved_steps_are_never_run_again(tmp_path, capsys):
    """BUGS 1, 2, 43, 45, 50: seeded; every kill that hits is counted by its point."""
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    lay_out(calm)
    lay_out(wild)
    (calm / "enough").touch()
    line = ("run", "many.py", "samples.csv", "--slots", "16")
    assert start(calm, *line).wait(SAMPLES * 2) == 0, (calm / LOG).read_text()

    rng = random.Random(SEED)
    hits: Counter[str] = Counter()
    runs, began = 1, time.monotonic()
    run = start(wild, *line)
    try:
        while run.poll() is None:
            time.sleep(rng.uniform(0.02, 0.3))  # a random moment is the point
            open_points = [point for point in POINTS if hits[point] < LEAST_HITS * max(1, SAMPLES // 300)]
            if not open_points:
                (wild / "enough").touch()
                continue
            point = rng.choice(open_points)
            if not kill(find(point, run, rng)):
                continue
            hits[point] += 1
            if point.startswith("run"):
                assert run.wait(30) == -signal.SIGKILL
                run, runs = start(wild, *line), runs + 1
        seconds = time.monotonic() - began
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0, (wild / LOG).read_text()[-4000:]
    assert all(hits[point] >= LEAST_HITS for point in POINTS), hits
    assert results(wild) == results(calm)
    assert len(results(wild)) == 2 * SAMPLES + 1
    assert executions_of_saved_steps(wild) == []
    with duckdb.connect(str(wild / ".canard" / "state.duckdb"), read_only=True) as con:
        assert con.execute("SELECT sum(failures) FROM canard_absurd.tasks").fetchone() == (0,)
        states = dict(con.execute("SELECT state, count(*) FROM canard_absurd.samples GROUP BY 1").fetchall())
    assert states == {"done": SAMPLES + 1}
    wait_until(lambda: not [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(str(wild))], 5)
    with capsys.disabled():
        starts = len((wild / "starts").read_text().splitlines())
        print(f"\n{SAMPLES} samples, {3 * SAMPLES + 1} commands, {starts} begun; {runs} runs, {seconds:.0f} s")
        print(dict(hits))
