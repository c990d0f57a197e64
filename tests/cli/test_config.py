"""config and the settings of run, end to end."""

from __future__ import annotations

import json

from tests.cli.pipelines import canard, lay_out


def test_config_shows_every_value_and_where_it_comes_from(tmp_path):
    (tmp_path / "canard.toml").write_text('memory = "3G"\n[profile.lab]\ncpus = 2\n')
    found = canard(tmp_path, "config", "--profile", "lab", CANARD_PIPE_SLOTS="9")
    assert (found.returncode, found.stderr) == (0, "")
    assert f"read: {tmp_path}/canard.toml" in found.stdout
    assert "profile: lab" in found.stdout
    lines = {line.split()[0]: line for line in found.stdout.splitlines() if line}
    assert lines["memory"].split()[1:] == ["3", "GiB", f"{tmp_path}/canard.toml:1"]
    assert lines["cpus"].endswith("canard.toml:3 (profile lab)")
    assert lines["slots"].split()[1:] == ["9", "$CANARD_PIPE_SLOTS"]
    assert lines["results"].split()[1:] == ["results", "default"]
    rows = json.loads(canard(tmp_path, "config", "--json").stdout)
    assert next(row for row in rows if row["name"] == "memory") == {
        "name": "memory", "value": 3 * 1024**3, "source": f"{tmp_path}/canard.toml:1",
        "variable": "CANARD_PIPE_MEMORY",
    }  # fmt: skip


def test_wrong_settings_end_with_2_and_nothing_runs(tmp_path):
    lay_out(tmp_path, A="good")
    (tmp_path / "canard.toml").write_text("cpu = 3\n")
    for arguments in (["config"], ["run", "pipe.py", "s.csv"], ["status"]):
        done = canard(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "canard.toml:1" in done.stderr
        assert "did you mean 'cpus'?" in done.stderr
    assert not (tmp_path / ".canard").exists()


def test_a_run_takes_its_folders_from_the_settings_and_other_commands_find_them(tmp_path):
    lay_out(tmp_path, A="bad")
    (tmp_path / "canard.toml").write_text('state = "var/state"\n[profile.lab]\nwork = "scratch"\nresults = "out"\n')
    done = canard(tmp_path, "run", "pipe.py", "s.csv", "--profile", "lab")
    assert done.returncode == 1, done.stderr
    assert "next: canard-pipe why A" in done.stdout  # without --state: the setting finds it
    assert (tmp_path / "scratch" / "tiny" / "once").is_dir()
    assert not (tmp_path / "work").exists()
    assert "it is bad" in canard(tmp_path, "why", "A").stdout
    (tmp_path / "A.in").write_text("good\n")
    assert canard(tmp_path, "retry", "A").returncode == 0
    assert (tmp_path / "out" / "cohort" / "all.txt").is_file()


def test_the_command_line_is_stronger_than_a_setting(tmp_path):
    lay_out(tmp_path, A="good")
    (tmp_path / "canard.toml").write_text('results = "out"\n')
    assert canard(tmp_path, "run", "pipe.py", "s.csv", "--results", "mine").returncode == 0
    assert (tmp_path / "mine" / "cohort" / "all.txt").is_file()
    assert not (tmp_path / "out").exists()
