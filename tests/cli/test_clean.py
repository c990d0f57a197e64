"""clean from the command line: a list beside a living run, a refusal to act, and what is freed."""

from __future__ import annotations

import json

from tests.cli.pipelines import canard, lay_out
from tests.cli.test_run import held  # noqa: F401 - a fixture


def test_the_list_comes_first_and_yes_acts(tmp_path):
    lay_out(tmp_path, A="good")
    assert canard(tmp_path, "run", "pipe.py", "s.csv").returncode == 0
    listed = canard(tmp_path, "clean")
    assert listed.returncode == 0, listed.stderr
    assert "tries of finished samples" in listed.stdout
    assert "canard-pipe clean --yes" in listed.stdout
    folders = {row["folder"]: row for row in json.loads(canard(tmp_path, "clean", "--json").stdout)}
    assert str(tmp_path.joinpath("work", "tiny", "A", "copy", "attempt-1")) in folders
    done = canard(tmp_path, "clean", "--yes")
    assert "removed" in done.stdout
    assert not any((tmp_path / folder).exists() for folder in folders)
    assert (tmp_path / "work" / "tiny" / "once").is_dir()
    assert (tmp_path / "results" / "A" / "A.txt").is_file()
    assert canard(tmp_path, "clean").stdout == "nothing may go\n"
    assert canard(tmp_path, "run", "pipe.py", "s.csv").returncode == 0  # nothing to do, and nothing missed


def test_beside_a_living_run_it_lists_and_does_not_act(held, tmp_path):  # noqa: F811 - the fixture
    assert canard(tmp_path, "clean").stdout == "nothing may go\n"
    acted = canard(tmp_path, "clean", "--yes")
    assert acted.returncode == 3
    assert str(held.pid) in acted.stderr
