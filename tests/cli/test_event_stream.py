"""The stream of events: what a run tells other programs, killed and resumed, and files that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from canard_pipe.report.events import VERSION, EventLines, open_events
from tests.cli.pipelines import canard, command, environment, lay_out, start
from tests.conftest import wait_until


def events_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_killed_run_and_its_resumption_in_one_file(tmp_path):
    lay_out(tmp_path, A="one", B="bad")
    held = tmp_path / "held"
    held.touch()
    line = ("run", "pipe.py", "s.csv", "--events", "events.jsonl", "--param", f"hold={held}")
    file = tmp_path / "events.jsonl"
    run = start(tmp_path, *line)
    try:
        wait_until(
            lambda: {("A", "copy"), ("B", "copy")}
            <= {(e["sample"], e["step"]) for e in events_in(file) if e["event"] == "command_started"},
            60,
        )
    finally:
        run.kill()
        run.wait()
    first = events_in(file)
    assert {"run_started", "planned"} <= {e["event"] for e in first}
    assert "run_ended" not in {e["event"] for e in first}
    with file.open("a") as cut:
        cut.write('{"version": 1, "run')  # as a full disk or a crash of the machine leaves it
    held.unlink()
    assert canard(tmp_path, *line).returncode == 1

    lines = file.read_text().splitlines()
    assert lines[len(first)] == '{"version": 1, "run'
    second = [json.loads(line) for line in lines[len(first) + 1 :]]
    assert {e["version"] for e in second} == {VERSION}
    assert [e["number"] for e in second] == list(range(1, len(second) + 1))
    assert len({e["run_id"] for e in first} - {None}) == len({e["run_id"] for e in second} - {None}) == 1
    assert next(e for e in second if e["event"] == "run_started")["interrupted_tasks"] == 2

    def of(name, **facts):
        return [e for e in second if e["event"] == name and all(e[key] == value for key, value in facts.items())]

    assert of("planned")[0]["samples"] == {"same": 2}
    assert of("claimed", kind="sample", sample="A")
    assert of("step_saved", sample="A", step="count")
    (ended,) = of("command_ended", sample="B", step="count")
    assert (ended["state"], ended["cause"], ended["exit_code"]) == ("failed", "exit", 3)
    assert of("published", sample="A")[0]["files"] == {"A.txt": str(tmp_path / "results" / "A" / "A.txt")}
    assert [e["state"] for e in of("state", kind="sample", sample="B")] == ["failed"]
    assert of("run_ended")[0]["exit_status"] == 1
    assert second[-1]["event"] == "run_ended"


def test_events_on_standard_output_leave_what_people_read_to_standard_error(tmp_path):
    lay_out(tmp_path, A="one")
    found = canard(tmp_path, "run", "pipe.py", "s.csv", "--events", "-")
    assert found.returncode == 0
    told = [json.loads(line) for line in found.stdout.splitlines()]
    assert told[-1]["counts"] == {"done": 1}
    assert "exit status 0" in found.stderr
    again = canard(tmp_path, "run", "pipe.py", "s.csv", "--events", "-", "--json")
    assert (again.returncode, "both write to standard output" in again.stderr) == (2, True)


def test_a_file_that_cannot_be_made_is_said_before_anything_runs(tmp_path):
    lay_out(tmp_path, A="one")
    found = canard(tmp_path, "run", "pipe.py", "s.csv", "--events", "no/such/folder")
    assert found.returncode == 2
    assert "events cannot be written to" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "work").exists()


def test_a_full_disk_fails_no_sample_and_is_said_once(tmp_path):
    lay_out(tmp_path, A="one")
    found = canard(tmp_path, "run", "pipe.py", "s.csv", "--events", "/dev/full")
    assert found.returncode == 0, found.stdout
    assert found.stdout.count("No space left on device; the run goes on") == 1
    assert "events of this run are not in /dev/full" in found.stdout


def test_a_reader_who_leaves_fails_no_sample(tmp_path):
    lay_out(tmp_path, A="one")
    run = subprocess.Popen(
        command("run", "pipe.py", "s.csv", "--events", "-"), cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    run.stdout.readline()
    run.stdout.close()
    assert run.wait(60) == 0
    assert run.stderr is not None
    run.stderr.close()


def test_after_a_slow_reader_the_numbers_show_the_gap_and_lines_are_whole(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    troubles: list[str] = []
    with pytest.raises(Exception, match="No such device"):
        open_events(pipe, troubles.append)  # nobody reads
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_events(pipe, troubles.append) as file:
        lines = EventLines(file.write, lambda: 0)
        for _ in range(400):
            lines.note("x" * 10_000)  # longer than the system writes at once or not at all
        read = b""
        while b"400" not in read[-50_000:]:
            try:
                read += os.read(reader, 1 << 20)
            except BlockingIOError:
                lines.note("400")
    os.close(reader)
    told = [json.loads(line) for line in read.splitlines()]
    numbers = [each["number"] for each in told]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < numbers[-1]
    assert len(troubles) == 2
