"""backup: with and without a living run."""

from __future__ import annotations

import json

import pytest

from canard_pipe.cli.main import invoke
from tests.cli.pipelines import canard, lay_out
from tests.cli.test_run import held, states  # noqa: F401 - held is a fixture


def test_a_state_at_rest_is_backed_up_and_can_be_gone_back_to(tmp_path):
    lay_out(tmp_path, A="good")
    assert canard(tmp_path, "run", "pipe.py", "s.csv").returncode == 0
    done = canard(tmp_path, "backup", "copy.duckdb")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "copy.duckdb") in done.stdout
    (tmp_path / "B.in").write_text("good\n")
    (tmp_path / "s.csv").write_text("sample,fastq\nA,A.in\nB,B.in\n")
    assert canard(tmp_path, "run", "pipe.py", "s.csv").returncode == 0
    assert "B" in states(tmp_path)
    (tmp_path / "copy.duckdb").replace(tmp_path / ".canard" / "state.duckdb")
    assert states(tmp_path) == {"A": "done", "reference": "done", "cohort": "done"}


def test_a_living_run_is_asked_and_goes_on(held, tmp_path):  # noqa: F811 - the fixture
    done = canard(tmp_path, "backup", "copy.duckdb", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert states(tmp_path)["A"] == "running"
    again = canard(tmp_path, "backup", "copy.duckdb")
    assert again.returncode == 2
    assert "exists" in again.stderr
    (tmp_path / "aside").mkdir()
    (tmp_path / "copy.duckdb").replace(tmp_path / "aside" / "state.duckdb")
    assert states_of_backup(tmp_path)["reference"] == "done"


def states_of_backup(folder):
    found = canard(folder, "sql", "--state", "aside", "--json", "select sample, state from canard_absurd.samples")
    assert found.returncode == 0, found.stderr
    return {row["sample"]: row["state"] for row in json.loads(found.stdout)}


@pytest.mark.parametrize("path", ["there", "no/such/folder/copy.duckdb"])
def test_what_cannot_be_is_refused_with_2(tmp_path, monkeypatch, path):
    lay_out(tmp_path, A="good")
    assert canard(tmp_path, "run", "pipe.py", "s.csv").returncode == 0
    (tmp_path / "there").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert invoke(["backup", path]) == 2
    assert (tmp_path / "there").read_text() == "mine"


def test_without_a_state_there_is_nothing_to_back_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke(["backup", "copy.duckdb"]) == 2
    assert list(tmp_path.iterdir()) == []
