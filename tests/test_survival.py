"""The main job under SIGKILL: nothing is lost, nothing that was done is done again, nothing is left alive."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import duckdb
import psutil
import pytest

from tests.conftest import require_tool, shared_data, wait_until
from tests.program import LOG, canard, command, start
from tests.test_pipelines import GERMLINE, md5, sites

BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
SITES = {
    "A/A": (265, "e538e84de48e16022ecccfb1acf1d42e"),
    "B/B": (309, "1b3946508624d2bfdfb4b21f3dd994ee"),
    "C/C": (309, "1b3946508624d2bfdfb4b21f3dd994ee"),
    "cohort/merged": (526, "cf9a48a8bb45f247dca7215202d32359"),
}


def alive(folder: Path) -> list[str]:
    """The processes whose directory lies in the folder: a cleared environment does not hide them."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(" ".join(process.info["cmdline"] or []))
        except psutil.Error:
            continue
    return found


def finished_commands(folder: Path) -> set[str]:
    """The folders of commands a try of which has ended well by its own record."""
    found = set()
    for record in folder.glob("work/**/attempt-*/status.json"):
        content = json.loads(record.read_text())
        if content["ended_by"] == "itself" and content["exit_code"] == 0:
            found.add(str(record.parents[1]))
    return found


def starts(folder: Path) -> Counter[str]:
    """How often a tool was started for each command, counted by the tools themselves outside the folders of tries."""
    log = folder / "starts.txt"
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(str(Path(line).parent) for line in lines)


def make_counting_tools(folder: Path, tools: list[str]) -> Path:
    """Programs before the real ones on PATH that note the folder they start in, and leave time to be killed."""
    place = folder / "tools"
    place.mkdir()
    for tool in tools:
        script = place / tool
        note = f'echo "$PWD" >> "{folder}/starts.txt"'
        script.write_text(f'#!/bin/sh\n{note}\nsleep 0.4\nexec "{require_tool(tool)}" "$@"\n')
        script.chmod(0o755)
    return place


def assert_results_are_whole(results: Path) -> None:
    for file in results.rglob("*"):
        if file.is_file():
            raw = file.read_bytes()
            assert raw, file
            assert not file.is_symlink()
            if file.name.endswith((".bam", ".vcf.gz", ".tbi")):
                assert raw.endswith(BGZF_END), file
            if file.name.endswith(".json"):
                json.loads(raw)


@pytest.mark.timeout(300)
def test_ten_sigkills_at_random_moments_lose_nothing_and_repeat_nothing(tmp_path):
    """BUGS 9, 43, 45: the same plain command each time, with the default lease and max_failures."""
    data = shared_data() / "yeast-chrI"
    tools = make_counting_tools(tmp_path, ["bwa", "samtools", "bcftools"])
    arguments = ("run", GERMLINE, data / "samples.csv", "--param", f"reference={data / 'ref' / 'genome.fa'}")
    rng = random.Random(20261130)
    path = f"{tools}:{os.environ['PATH']}"
    done: set[str] = set()
    before: Counter[str] = Counter()
    hits = 0
    for _ in range(10):
        run = start(tmp_path, *arguments, PATH=path)
        time.sleep(rng.uniform(0.5, 1.5))  # a random moment is the point
        ended = run.poll() is not None
        run.kill()
        run.wait()
        wait_until(lambda: not alive(tmp_path), 1.0)
        assert_results_are_whole(tmp_path / "results")
        now = starts(tmp_path)
        assert {place: now[place] for place in done} == {place: before[place] for place in done}
        done, before = finished_commands(tmp_path), now
        if ended:
            break
        hits += 1
    assert hits >= 8, "the run ended before it could be killed often enough"
    assert start(tmp_path, *arguments, PATH=path).wait(120) == 0, (tmp_path / LOG).read_text()
    now = starts(tmp_path)
    assert {place: now[place] for place in done} == {place: before[place] for place in done}
    for name, (count, checksum) in SITES.items():
        found = sites(tmp_path / "results" / f"{name}.vcf.gz")
        assert (len(found), md5(found)) == (count, checksum)
    with duckdb.connect(str(tmp_path / ".canard" / "state.duckdb"), read_only=True) as con:
        assert con.execute("SELECT sum(failures) FROM canard_absurd.tasks").fetchone() == (0,)
        rows = con.execute(
            "SELECT task_seq, name, count(*) FROM canard_absurd.checkpoints WHERE kind <> 'mapping' "
            "GROUP BY ALL HAVING count(*) > 1"
        ).fetchall()
        assert rows == []
        outcomes = dict(con.execute("SELECT outcome, count(*) FROM canard_absurd.attempts GROUP BY 1").fetchall())
        assert set(outcomes) <= {"completed", "suspended", "interrupted"}


ITEMS = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("items", rows=Row, key="sample")

@pipeline.sample
def call(sample, ctx):
    lanes = ctx.map("lane", lane, [(sample.row, number) for number in range(4)])
    return ctx.step("join", lambda: " ".join(lane.read_text().strip() for lane in lanes))

def lane(given, ctx):
    row, number = given
    first = ctx.step("first", run, f"{row.sample}{number}", ctx)
    parts = ctx.map("region", run, ["x", "y"]) if number == 0 else []
    return ctx.step("second", run, first.read_text().strip() + str(len(parts)), ctx)

def run(text, ctx):
    return ctx.shell('echo "$PWD" >> {log}; sleep 0.2; echo {word} > out', log=HERE / "starts.txt", word=text,
                     outputs=["out"]) / "out"
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2])
def test_sigkills_among_items_repeat_no_saved_step_of_any(tmp_path, seed):
    """BUGS 43, 45 for maps, nested ones too: killed at random, every item ends, once for each step."""
    (tmp_path / "pipe.py").write_text(ITEMS)
    (tmp_path / "s.csv").write_text("sample\n" + "".join(f"{sample}\n" for sample in "ABCDEF"))
    arguments = ("run", tmp_path / "pipe.py", tmp_path / "s.csv", "--cpus", "4")
    rng = random.Random(seed)
    done: set[str] = set()
    before: Counter[str] = Counter()
    hits = 0
    for _ in range(8):
        run = start(tmp_path, *arguments)
        time.sleep(rng.uniform(0.6, 1.6))  # a random moment is the point
        hits += run.poll() is None
        run.kill()
        run.wait()
        wait_until(lambda: not alive(tmp_path), 1.0)
        now = starts(tmp_path)
        assert {place: now[place] for place in done} == {place: before[place] for place in done}
        done, before = finished_commands(tmp_path), now
    assert hits >= 4, "the run ended before it could be killed often enough"
    assert start(tmp_path, *arguments).wait(100) == 0, (tmp_path / LOG).read_text()
    now = starts(tmp_path)
    assert {place: now[place] for place in done} == {place: before[place] for place in done}
    assert len(finished_commands(tmp_path)) == 6 * (4 * 2 + 2)
    with duckdb.connect(str(tmp_path / ".canard" / "state.duckdb"), read_only=True) as con:
        found = con.execute("SELECT state, count(*), sum(failures) FROM canard_absurd.items GROUP BY state").fetchall()
        assert found == [("done", 6 * (4 + 2), 0)]
        results = con.execute("SELECT result FROM canard_absurd.tasks WHERE name = 'call' ORDER BY id").fetchall()
        assert results == [(f'"{s}02 {s}10 {s}20 {s}30"',) for s in "ABCDEF"]
        twice = con.execute(
            "SELECT task_seq, name FROM canard_absurd.checkpoints WHERE kind <> 'mapping' "
            "GROUP BY ALL HAVING count(*) > 1"
        ).fetchall()
        assert twice == []


TREE = '''
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("tree", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    ctx.step("first", lambda: ctx.process(["sh", "-c", "echo x >> ../../../../../first.txt"]))
    ctx.step("tree", lambda: ctx.process(["bash", "-c", """
        sleep 100 | cat &
        setsid sleep 101 &
        (setsid sh -c 'env -i sleep 102 &' &)
        touch ../../../../../running
        sleep 103
    """]))
'''


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_process_outlives_a_run_that_is_stopped_or_killed(tmp_path, number):
    """BUGS 50: grandchildren, sessions of their own and cleared environments included."""
    (tmp_path / "tree.py").write_text(TREE)
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "tree.py", "samples.csv")
    wait_until((tmp_path / "running").exists, 20)
    assert len(alive(tmp_path)) >= 5
    os.kill(run.pid, number)
    status = run.wait(30)
    wait_until(lambda: not alive(tmp_path), 1.0)
    if number != signal.SIGKILL:
        assert status == 130
        with duckdb.connect(str(tmp_path / ".canard" / "state.duckdb"), read_only=True) as con:
            row = con.execute("SELECT state, failures, worker FROM canard_absurd.tasks").fetchone()
            assert row == ("ready", 0, None)
    again = start(tmp_path, "run", "tree.py", "samples.csv")
    wait_until(lambda: len(list(tmp_path.glob("work/**/tree/attempt-2"))) == 1, 20)  # goes on at once
    again.kill()
    again.wait()
    wait_until(lambda: not alive(tmp_path), 1.0)
    assert (tmp_path / "first.txt").read_text() == "x\n"


def test_a_truncated_sample_fails_alone_and_retry_of_it_alone_makes_all(tmp_path):
    """BUGS 24-26 on real reads: cause and file are named, the others are published, the exit status says so."""
    data = shared_data()
    reads = tmp_path / "reads"
    shutil.copytree(data / "yeast-chrI" / "reads", reads)
    reads.chmod(0o755)
    whole = (reads / "B.fastq.gz").read_bytes()
    for file in reads.iterdir():
        file.chmod(0o644)
    (reads / "B.fastq.gz").write_bytes(whole[:1_000_000])
    (tmp_path / "samples.csv").write_text("sample,fastq_1\n" + "".join(f"{s},reads/{s}.fastq.gz\n" for s in "ABC"))
    arguments = ("run", GERMLINE, "samples.csv", "--param", f"reference={data / 'yeast-chrI' / 'ref' / 'genome.fa'}")
    first = canard(tmp_path, *arguments)
    assert first.returncode == 1, first.stderr
    assert sorted(place.name for place in (tmp_path / "results").iterdir()) == ["A", "C"]
    why = canard(tmp_path, "why", "B").stdout
    assert "B.fastq.gz" in why
    assert "truncated" in why
    (reads / "B.fastq.gz").write_bytes(whole)
    assert canard(tmp_path, "retry", "B").returncode == 0
    for name, (count, _) in SITES.items():
        assert len(sites(tmp_path / "results" / f"{name}.vcf.gz")) == count


SLOW = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("slow", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    ctx.step("wait", lambda: ctx.process(["sh", "-c", "touch ../../../../../running; sleep 600"]))
"""


def test_a_second_terminal_sees_a_going_run_and_a_second_run_is_refused(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "samples.csv").write_text("sample\nA\nB\n")
    run = start(tmp_path, "run", "slow.py", "samples.csv")
    try:
        wait_until((tmp_path / "running").exists, 20)
        owner = tmp_path / ".canard" / "owner.json"
        wait_until(lambda: json.loads(owner.read_text()).get("uri"), 20)
        snapshot = tmp_path / ".canard" / "status.json"
        wait_until(lambda: snapshot.exists() and len(json.loads(snapshot.read_text())["running"]) == 2, 20)
        status = canard(tmp_path, "status")
        assert status.returncode == 0
        assert "running" in status.stdout
        assert "wait" in canard(tmp_path, "why", "A").stdout
        counted = canard(tmp_path, "sql", "select state, count(*) from canard_absurd.tasks group by state")
        assert "running" in counted.stdout
        second = canard(tmp_path, "run", "slow.py", "samples.csv")
        assert second.returncode == 3
        assert str(run.pid) in second.stderr
        cancelled = canard(tmp_path, "cancel", "--all")
        assert cancelled.returncode == 0, cancelled.stderr
        assert run.wait(30) == 1
    finally:
        run.kill()
        run.wait()
    assert canard(tmp_path, "status").stdout.count("cancelled") >= 2


ENDLESS = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("endless", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    open("running", "w").close()
    while True:
        pass
"""


def test_a_function_that_never_ends_cannot_keep_the_run_after_the_second_ctrl_c(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "endless.py", "samples.csv")
    wait_until((tmp_path / "running").exists, 20)
    run.send_signal(signal.SIGINT)
    wait_until(lambda: b"stopping" in (tmp_path / LOG).read_bytes(), 10)
    run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130
    with duckdb.connect(str(tmp_path / ".canard" / "state.duckdb"), read_only=True) as con:
        assert con.execute("SELECT state, failures FROM canard_absurd.tasks").fetchall() == [("ready", 0)]


def test_a_reader_of_the_output_that_goes_away_ends_no_sample(tmp_path):
    (tmp_path / "quick.py").write_text(SLOW.replace("touch ../../../../../running; sleep 600", "sleep 0.2"))
    (tmp_path / "samples.csv").write_text("sample\n" + "".join(f"s{i}\n" for i in range(8)))
    with subprocess.Popen(
        command("run", "quick.py", "samples.csv"), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        run.wait(60)
    counts = json.loads((tmp_path / ".canard" / "status.json").read_text())["counts"]
    assert counts == {"done": 8}


def test_a_run_under_nohup_outlives_its_terminal(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW.replace("sleep 600", "sleep 1"))
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    run = subprocess.Popen(
        ["nohup", *command("run", "slow.py", "samples.csv")], cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until((tmp_path / "running").exists, 20)
    run.send_signal(signal.SIGHUP)
    assert run.wait(30) == 0
