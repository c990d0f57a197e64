"""doctor, as a user calls it: real checks on a real folder, a real self-test, and what is told of what is wrong."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from canard_pipe.cli.main import invoke
from canard_pipe.pipeline import health, selftest
from tests.cli.pipelines import canard, lay_out, start
from tests.conftest import wait_until
from tests.report.made import make


@pytest.fixture
def look(tmp_path, monkeypatch, capsys):
    """Call doctor without its self-test in a new folder: exit status, findings by topic."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = invoke(["doctor", "--no-self-test", "--json", *arguments])
        found: dict[str, list[dict[str, str]]] = {}
        for finding in json.loads(capsys.readouterr().out or "[]"):
            found.setdefault(finding["topic"], []).append(finding)
        return status, found

    return run


def test_a_machine_that_is_ready(tmp_path):
    """All checks and the self-test, which leaves nothing."""
    done = canard(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("ok    self-test: 2 samples, a once and a cohort function have") for line in lines)
    assert any(line.startswith("ok    extension: quack") for line in lines)
    assert not any(line.startswith("fail") for line in lines)
    assert lines[-1].endswith("a run can start")
    assert list(tmp_path.iterdir()) == []


def test_a_self_test_that_fails_is_told_and_its_folder_kept(tmp_path):
    """The profile's settings hold for it: with less memory than its commands ask for it cannot run."""
    (tmp_path / "canard.toml").write_text('[profile.tiny]\nmemory = "1M"\n')
    done = canard(tmp_path, "doctor", "--profile", "tiny", "--json")
    assert done.returncode == 1
    (bad,) = [finding for finding in json.loads(done.stdout) if finding["level"] == "fail"]
    assert bad["topic"] == "self-test"
    assert "it ended with exit status 1" in bad["message"]
    (kept,) = tmp_path.glob("canard-doctor-*")
    assert str(kept) in bad["way_out"]
    assert (kept / "stderr.log").exists()


@pytest.mark.parametrize("change", ["results", "state", "nothing printed"])
def test_a_self_test_with_other_results_is_a_failure(tmp_path, change):
    said: list[dict[str, str | None]] = []
    said += [{"sample": name, "function": "count", "state": "done"} for name in selftest.SAMPLES]
    said += [{"sample": None, "function": name, "state": "done"} for name in ("header", "together")]
    for name, text in {"cohort/names.txt": "2\n", "A/words.txt": "words\nteal\nduck\ncanard\n3\n",
                       "B/words.txt": "words\neider\n1\n"}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert selftest._wrong(0, json.dumps(said), tmp_path) is None
    if change == "results":
        (tmp_path / "B" / "words.txt").write_text("words\n")
    elif change == "state":
        said[0]["state"] = "failed"
    assert selftest._wrong(0, "" if change == "nothing printed" else json.dumps(said), tmp_path)


def test_a_self_test_that_does_not_end_is_ended(tmp_path):
    plan = selftest.Plan(
        program=["sh", "-c", "sleep 600"], pipeline_file=Path(__file__), settings_file=tmp_path / "none",
        launch=tmp_path, folders={"results": tmp_path / "results"}, seconds=0.1,
    )  # fmt: skip
    assert "it has not ended within 0.1 s" in selftest.self_test(plan, {"PATH": "/usr/bin:/bin"}).message


def test_tools_of_the_pipeline_are_looked_for(look, tmp_path):
    lay_out(tmp_path, A="ok")
    text = (tmp_path / "pipe.py").read_text()
    (tmp_path / "pipe.py").write_text(text.replace('tools=["sh"]', 'tools=["sh", "no-such-tool"]'))
    status, found = look("pipe.py")
    assert status == 1
    assert [finding["level"] for finding in found["tools"]] == ["ok", "fail"]


def test_a_pipeline_file_or_setting_that_is_wrong_is_2(look, tmp_path):
    assert look("not-there.py")[0] == 2
    (tmp_path / "canard.toml").write_text("memry = 5\n")
    assert look()[0] == 2


def test_settings_and_options_name_the_folders(look, tmp_path):
    (tmp_path / "canard.toml").write_text('state = "elsewhere"\ncpus = 5000\n')
    status, found = look("--work", "w")
    assert status == 0
    assert any("elsewhere" in finding["message"] for finding in found["state"])
    assert str(tmp_path / "w") in found["work"][0]["message"]
    assert found["resources"][0]["level"] == "warn"


def test_a_state_of_a_newer_release_fails(look, tmp_path):
    made = make(tmp_path)
    made.sql("INSERT INTO canard_absurd.schema_version VALUES (999, now()::TIMESTAMP)")
    made.database.close()
    status, found = look()
    assert status == 1
    assert found["state"][0]["level"] == "fail"


def test_beside_a_going_run(tmp_path):
    lay_out(tmp_path, A="ok")
    (tmp_path / "hold").touch()
    run = start(tmp_path, "run", "pipe.py", "s.csv", "--param", f"hold={tmp_path / 'hold'}")
    wait_until(lambda: (tmp_path / ".canard" / "status.json").exists(), 30)
    try:
        done = canard(tmp_path, "doctor", "--no-self-test")
        assert done.returncode == 0, done.stdout
        assert f"a run is going on (process {run.pid})" in done.stdout
    finally:
        (tmp_path / "hold").unlink()
        assert run.wait(60) == 0


def test_packages_that_do_not_go_together_are_warned_about():
    assert health.check_packages(dict.fromkeys(health.TOGETHER, "1.5.5")).level == "ok"
    for odd in ("1.5.4", None):
        found = health.check_packages({"duckdb": "1.5.5", "duckdb-extension-quack": odd})
        assert found.level == "warn"


def test_an_extension_that_cannot_be_loaded_is_a_warning_with_the_way_out(look, monkeypatch):
    from canard_pipe.engine.quack import extensions

    monkeypatch.setattr(extensions, "EXTENSIONS", ("nosuch",))
    status, found = look()
    assert status == 0
    (finding,) = found["extension"]
    assert finding["level"] == "warn"
    assert "pip install duckdb-extension-httpfs==" in finding["way_out"]


def test_an_interrupted_doctor_leaves_nothing(tmp_path):
    look = start(tmp_path, "doctor")
    wait_until(lambda: list(tmp_path.glob("canard-doctor-*/stderr.log")), 60)
    look.send_signal(signal.SIGINT)
    assert look.wait(60) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["run.log"]
