"""The tiny job, on a Slurm that lives in this process and really runs the script, or does what bad sites do."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.execution.slurm import Answer, Doubt, JobId, Refused, Seen, trial
from canard_pipe.execution.slurm.settings import from_table

START = 1_800_000_000.0


@dataclass
class Time:
    """A clock that goes on when somebody sleeps."""

    now: float = 0.0

    def clock(self) -> trial.Clock:
        return trial.Clock(lambda: START + self.now, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Slurm:
    """A client. ``runs``: the script is executed when it is submitted; ``answer``: in place of a job's number."""

    time: Time
    runs: bool = True
    answer: Any = None
    state: str = "COMPLETED"
    reason: str = ""
    found: bool = True
    in_accounting: bool = True
    submit_off: float = 0.0
    edit: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Seen] = field(default_factory=dict)
    cancelled: list[str | None] = field(default_factory=list)

    def submit(self, script: Path, options):
        if isinstance(self.answer, Refused):
            return self.answer
        (name,) = [option.partition("=")[2] for option in options if option.startswith("--job-name=")]
        at = round((START + self.time.now + self.submit_off) * 1e6)
        self.jobs[name] = Seen("7", name, self.state, self.reason, submit_us=at, node="n1", source="squeue")
        if self.runs:
            subprocess.run(["bash", script], check=True, timeout=30)
            lines = (script.parent / trial.ANSWER).read_text().splitlines()
            said = dict(line.split("=", 1) for line in lines if "=" in line)
            said = {"time": str(START), **{name: value for name, value in said.items() if name != "time"}} | self.edit
            (script.parent / trial.ANSWER).write_text("".join(f"{name}={value}\n" for name, value in said.items()))
        return self.answer or JobId("7")

    def by_name(self, names, since_us):  # noqa: ARG002
        return Answer(tuple(self.jobs[name] for name in names if self.found and name in self.jobs), True)

    def ask(self, words, seconds=None):  # noqa: ARG002
        assert words[0] == "sacct"
        return 0, "".join(f"7|{name}\n" for name in self.jobs) if self.in_accounting else "", ""

    def cancel(self, jobs):
        self.cancelled += [job.job_id for job in jobs]


@pytest.fixture
def tried(tmp_path):
    """Try a job on such a Slurm: findings that are not ok by their message, and the Slurm."""

    def run(seconds: float = 30, settings=None, **given):
        time = Time()
        slurm = Slurm(time, **given)
        found = list(trial.try_job(
            slurm, from_table(settings or {}), tmp_path / "work", tmp_path, seconds=seconds, clock=time.clock(),  # type: ignore[arg-type]
        ))  # fmt: skip
        assert list(tmp_path.glob("canard-doctor-*")) == []
        return [(each.level, each.message) for each in found], slurm

    return run


def bad(findings):
    return [finding for finding in findings if finding[0] != "ok"]


def test_a_site_where_all_is_well(tried):
    found, slurm = tried()
    assert bad(found) == []
    assert len(found) == 6
    assert slurm.cancelled == []


def test_a_refused_job_is_told_in_slurms_words(tried):
    found, _ = tried(answer=Refused("Invalid account", final=True))
    assert found == [("fail", "Slurm has refused the job: Invalid account")]


def test_a_job_in_doubt_is_looked_up_and_followed(tried):
    found, _ = tried(answer=Doubt("Socket timed out"))
    assert bad(found) == [("warn", "nobody can tell whether there is a job: Socket timed out")]


def test_a_job_in_doubt_that_is_not_found_is_the_end(tried):
    found, slurm = tried(answer=Doubt("Socket timed out"), found=False, runs=False)
    assert [level for level, _ in found] == ["warn", "fail"]
    assert slurm.cancelled == []


def test_a_site_where_names_find_nothing(tried):
    found, slurm = tried(found=False)
    ((level, text),) = bad(found)
    assert level == "fail"
    assert "is found neither by squeue nor by sacct" in text
    assert slurm.cancelled == ["7"]


def test_a_job_that_waits_is_cancelled_after_the_patience(tried):
    found, slurm = tried(runs=False, state="PENDING", reason="Resources", seconds=20)
    ((level, text),) = bad(found)
    assert level == "warn"
    assert "has not started within 20 s: Resources; it is cancelled" in text
    assert slurm.cancelled == ["7"]
    assert 20 <= slurm.time.now < 25


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED", "FAILED"])
def test_what_a_node_writes_and_is_not_seen_here_is_a_folder_that_is_not_shared(tried, state):
    found, slurm = tried(runs=False, state=state, settings={"wait_for_record": 8.0})
    ((level, text),) = bad(found)
    assert level == "fail"
    assert f"the job is {state} on n1, and what it writes into" in text
    assert slurm.cancelled == (["7"] if state == "RUNNING" else [])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"token": ""}, "does not see what was written here"),
        ({"launch": ""}, "does not see the launch folder"),
        ({"runner": ""}, "does not see canard-pipe's own files"),
        ({"python": "3.6.8"}, "cannot start the Python that watches over commands (it is 3.6.8)"),
        ({"python": ""}, "cannot start the Python that watches over commands"),
    ],
)
def test_what_the_node_does_not_see_is_told(tried, edit, words):
    ((level, text),) = bad(tried(edit=edit)[0])
    assert level == "fail"
    assert words in text


def test_a_python_of_the_settings_that_is_not_there(tried):
    ((_, text),) = bad(tried(settings={"python": "/nonexistent/python3"})[0])
    assert "cannot start the Python" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"edit": {"time": str(START + 500)}}, "is 500 s ahead of this machine's"),
        ({"edit": {"time": str(START - 500)}}, "is 500 s behind this machine's"),
        ({"submit_off": -100.0}, "the clock of the controller is 99 s behind"),
    ],
)
def test_clocks_that_differ_are_told(tried, given, words):
    ((level, text),) = bad(tried(**given)[0])
    assert level == "warn"
    assert words in text


def test_an_accounting_that_does_not_know_the_name(tried):
    ((level, text),) = bad(tried(in_accounting=False)[0])
    assert (level, text) == ("warn", "sacct does not find the job by its name (not within 20 s)")


def test_the_lines_of_the_site_are_in_the_script(tried, tmp_path):
    tried(settings={"lines": [f"touch {tmp_path}/loaded"]})
    assert (tmp_path / "loaded").exists()


def test_a_folder_that_cannot_be_made(tried, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    ((level, text),) = tried()[0]
    assert level == "fail"
    assert "Permission denied" in text
