"""Faults that users of other tools have reported, run by run; and the list of all that have a test somewhere.

Each test names its numbers as ``BUGS n``. The list of numbers is that of the kinds outputs, losses, leases, signals,
scale, environment, paths and text.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from canard_pipe.pipeline import outlook
from tests.conftest import wait_until
from tests.pipeline.conftest import Project, Recorder
from tests.program import LOG, canard, start

ROOT = Path(__file__).parents[1]
KINDS = {
    "outputs": {1, 2, 6, 20}, "losses": {3, 16, 17, 18, 26}, "leases": {8, 21, 46, 47, 48, 49}, "signals": {37, 50, 64},
    "scale": {7, 57, 58, 69, 71}, "environment": {41, 59}, "paths": {54, 67, 68}, "text": {55, 56},
}  # fmt: skip


def numbers(text: str) -> set[int]:
    """Return the numbers that a text quotes: "BUGS 7", "BUGS 41, 59", "BUGS 46-48", "BUGS 5 and 23"."""
    found: set[int] = set()
    for quoted in re.findall(r"BUGS (\d+(?:(?:, | and |-)\d+)*)", text):
        for part in re.split(r", | and ", quoted):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def test_every_known_fault_of_these_kinds_has_a_test():
    tested = {n for file in (ROOT / "tests").rglob("test_*.py") for n in numbers(file.read_text(encoding="utf-8"))}
    missing = {kind: sorted(wanted - tested) for kind, wanted in KINDS.items()}
    assert {kind: left for kind, left in missing.items() if left} == {}


def test_numbers_are_read_as_they_are_written():
    quoted = "BUGS 1, 2" + " and BU" + "GS 46-48, 50; BU" + "GS 5 and 23"
    assert numbers(quoted) == {1, 2, 46, 47, 48, 50, 5, 23}


SEARCH = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("search", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    search = '''
        echo search begins >> ../../../../../log; echo half > hits.txt
        [ -e ../../../../../go ] || { touch ../../../../../asleep; sleep 60; }
        echo whole > hits.txt; echo search ends >> ../../../../../log
    '''
    hits = ctx.step("search", lambda: ctx.process(["sh", "-c", search], outputs=["hits.txt"]) / "hits.txt")
    text = "echo classify {hits} >> ../../../../../log; cat {hits} > out.txt"
    out = ctx.step("classify", lambda: ctx.shell(text, hits=hits, outputs=["out.txt"]) / "out.txt")
    ctx.publish({"out.txt": out})
"""


def test_a_consumer_never_starts_from_the_stump_of_its_producer(tmp_path):
    """BUGS 1, 2: killed in the middle of the producer, whose file is there already."""
    (tmp_path / "search.py").write_text(SEARCH)
    (tmp_path / "s.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "search.py", "s.csv")
    wait_until((tmp_path / "asleep").exists, 30)
    assert list(tmp_path.glob("work/**/hits.txt"))
    run.kill()
    run.wait()
    (tmp_path / "go").touch()
    assert start(tmp_path, "run", "search.py", "s.csv").wait(60) == 0, (tmp_path / LOG).read_text()
    said = (tmp_path / "log").read_text().splitlines()
    assert said[:3] == ["search begins", "search begins", "search ends"]
    assert said[3].endswith("attempt-2/hits.txt")
    assert len(said) == 4
    assert (tmp_path / "results" / "A" / "out.txt").read_text() == "whole\n"


class Cleaner(Recorder):
    """Somebody who removes the work folder as soon as a sample is said to be done."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.seen: list[int] = []

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:  # noqa: ARG002
        self.seen.append((self.folder / "results" / sample / "big.bin").stat().st_size)
        shutil.rmtree(self.folder / "work")


def test_done_is_said_only_when_the_results_are_whole_in_their_place(tmp_path, monkeypatch):
    """BUGS 6: publishing is part of the sample, also by a copy; the work folder may go at that moment."""
    project = Project(tmp_path)
    project.write("""
        import shutil

        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("big", rows=Row, key="sample")

        @pipeline.sample
        def one(sample, ctx):
            made = ctx.step("make", lambda: ctx.shell("head -c 60000000 /dev/urandom > big.bin", outputs=["big.bin"]))
            shutil.copy(made / "big.bin", HERE / "big.bin")
            ctx.publish({"big.bin": HERE / "big.bin"})
    """, "sample\nA\n")  # fmt: skip
    cleaner = Cleaner(tmp_path)
    monkeypatch.setattr("tests.pipeline.conftest.Recorder", lambda: cleaner)
    assert project.run().exit_status == 0
    assert cleaner.seen == [60_000_000]
    assert (tmp_path / "results" / "A" / "big.bin").read_bytes() == (tmp_path / "big.bin").read_bytes()


FILLING = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("filling", rows=Row, key="sample", tries=1)

@pipeline.sample
def one(sample, ctx):
    # Like the tools that do not look whether they could write: it always ends with 0.
    text = "head -c 4000000 /dev/zero | tr '\\\\0' x 2>/dev/null > out.txt || true"
    ctx.publish({"out.txt": ctx.step("fill", lambda: ctx.shell(text, outputs=["out.txt"]) / "out.txt")})
"""


def test_a_disk_that_fills_up_fails_the_samples_that_met_it_and_the_rest_is_made_once_there_is_space(tmp_path):
    """BUGS 7: also where a tool says nothing no stump is published; the state stays readable."""
    (tmp_path / "filling.py").write_text(FILLING)
    (tmp_path / "s.csv").write_text("sample\n" + "".join(f"s{n}\n" for n in range(5)))
    (tmp_path / "work").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(tmp_path / "work")]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        first = canard(tmp_path, "run", "filling.py", "s.csv", "--slots", "1")
        assert first.returncode == 1
        rows = json.loads(canard(tmp_path, "status", "--json").stdout)
        states = {row["sample"]: row["state"] for row in rows}
        assert sorted(states.values()) == ["done", "done", "failed", "failed", "failed"]
        assert all("is full: " in row["error"] for row in rows if row["state"] == "failed")
        made = {path.parent.name: path.stat().st_size for path in tmp_path.glob("results/*/*")}
        assert made == {sample: 4_000_000 for sample, state in states.items() if state == "done"}
        subprocess.run(["mount", "-o", "remount,size=100m", str(tmp_path / "work")], check=True)
        again = canard(tmp_path, "retry", "--failed")
        assert again.returncode == 0, again.stdout + again.stderr
        made = {path.parent.name: path.stat().st_size for path in tmp_path.glob("results/*/*")}
        assert made == {f"s{n}": 4_000_000 for n in range(5)}
    finally:
        subprocess.run(["umount", "--lazy", tmp_path / "work"], check=True)


HELD = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("held", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    text = "echo {key} >> ../../../../../starts; while ! [ -e ../../../../../go ]; do sleep 0.05; done"
    ctx.step("wait", lambda: ctx.shell(text, key=sample.key, cpus=0.1))
"""


@pytest.fixture
def held(tmp_path):
    """A run whose commands wait for the file ``go``."""
    (tmp_path / "held.py").write_text(HELD)
    (tmp_path / "s.csv").write_text("sample\n" + "".join(f"s{n}\n" for n in range(12)))
    run = start(tmp_path, "run", "held.py", "s.csv")
    wait_until(lambda: (tmp_path / "starts").exists() and len((tmp_path / "starts").read_text().split()) == 12, 60)
    yield tmp_path, run
    run.kill()
    run.wait()


def test_a_frozen_run_is_not_taken_over_and_goes_on_when_it_wakes(held):
    """BUGS 8: one at a time owns the state; it is named, and no command runs twice."""
    folder, run = held
    run.send_signal(signal.SIGSTOP)
    other = canard(folder, "run", "held.py", "s.csv", seconds=60)
    assert other.returncode == 3
    assert str(run.pid) in other.stderr
    run.send_signal(signal.SIGCONT)
    (folder / "go").touch()
    assert run.wait(60) == 0, (folder / LOG).read_text()
    assert len((folder / "starts").read_text().split()) == 12


def test_three_runs_on_one_state_lose_no_sample(held):
    """BUGS 21: one works, the others are told who does; the state and the counted executions agree."""
    folder, run = held
    others = [start(folder, "run", "held.py", "s.csv") for _ in range(2)]
    assert [other.wait(60) for other in others] == [3, 3]
    assert (folder / LOG).read_text().count(f"process {run.pid}") >= 2
    (folder / "go").touch()
    assert run.wait(60) == 0
    rows = json.loads(canard(folder, "sql", "--json", "SELECT count(*) AS n FROM canard_absurd.tasks").stdout)
    assert rows == [{"n": 12}]
    assert sorted((folder / "starts").read_text().split()) == sorted(f"s{n}" for n in range(12))


def test_who_cannot_write_can_look_while_a_run_goes_on_and_after_it(held, tmp_path_factory):
    """BUGS 49: nothing is locked and nothing is written for status, why and sql."""
    folder, run = held
    place = tmp_path_factory.mktemp("read-only")
    if subprocess.run(["mount", "--bind", folder, place], check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        look = [("status",), ("why", "s1"), ("sql", "SELECT count(*) FROM canard_absurd.tasks")]
        while_it_runs = [canard(place, *words) for words in look]
        (folder / "go").touch()
        assert run.wait(60) == 0
        after = [canard(place, *words) for words in look]
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
    for done in (*while_it_runs, *after):
        assert done.returncode == 0, done.stderr
    assert "running" in while_it_runs[0].stdout
    assert "12" in after[2].stdout


def test_a_status_that_a_wrapper_hides_is_found_by_the_command_itself(tmp_path):
    """BUGS 16: a crash of the real command before a friendly echo, with and without an output to show for it."""
    project = Project(tmp_path)
    project.write("""
        class Row(SampleRow):
            sample: str
            text: str

        pipeline = Pipeline("hidden", rows=Row, key="sample", tries=1)

        @pipeline.sample
        def one(sample, ctx):
            ctx.step("call", lambda: ctx.shell(sample.row.text, outputs=["out.txt"]))
    """, """
        sample,text
        A,sh -c 'kill -SEGV $$'; echo all done
        B,(sh -c 'kill -SEGV $$' || true); echo all done
    """)  # fmt: skip
    report = project.run()
    errors = {row["sample"]: str(row["error"]) for row in report.samples}
    assert report.exit_status == 1
    assert "SIGSEGV" in errors["A"]
    assert "out.txt is missing" in errors["B"]


def test_planning_takes_as_many_statements_for_many_rows_as_for_few(tmp_path, monkeypatch):
    """BUGS 57: no row of the sheet costs a statement of its own, neither at first nor when all is done."""
    counts = []
    look_ahead = outlook.look_ahead

    def counting(database, *args, **kwargs):
        asked: list[str] = []
        query = database.query

        def noted(name, **params):
            asked.append(name)
            return query(name, **params)

        monkeypatch.setattr(database, "query", noted)
        found = look_ahead(database, *args, **kwargs)
        counts.append(len(asked))
        return found

    monkeypatch.setattr(outlook, "look_ahead", counting)
    for rows in (10, 500):
        place = tmp_path / str(rows)
        place.mkdir()
        project = Project(place)
        project.write("""
            class Row(SampleRow):
                sample: str

            pipeline = Pipeline("plan", rows=Row, key="sample")

            @pipeline.sample
            def one(sample, ctx):
                return sample.key
        """, "sample\n" + "".join(f"s{n}\n" for n in range(rows)))  # fmt: skip
        assert project.run().exit_status == 0
        assert project.run().exit_status == 0
    assert counts[:2] == counts[2:]


