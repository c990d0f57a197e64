"""report on the command line: files written, files kept, and beside a going run."""

from __future__ import annotations

import pytest

from canard_pipe.cli.main import invoke
from tests.cli.pipelines import canard, lay_out, start
from tests.conftest import wait_until
from tests.report.made import make


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    made = make(tmp_path)
    made.command(made.failed("B", "no", {"kind": "exit"}), "call")
    made.database.close()
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = invoke(["report", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_it_writes_a_page_and_a_trace_and_writes_them_again(call, tmp_path):
    """BUGS 72: the rule for files that are there is one: an older report is replaced."""
    assert call()[0] == 0
    first = (tmp_path / "report.html").read_text()
    assert first.startswith("<!doctype html>")
    assert (tmp_path / "trace.tsv").read_text().count("\n") == 2
    status, out, _ = call()
    assert status == 0
    assert out.splitlines()[1] == "trace.tsv: 1 tries of commands"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".canard", "report.html", "trace.tsv", "work"]


def test_the_page_goes_where_it_is_asked_for(call, tmp_path):
    (tmp_path / "out").mkdir()
    assert call("--output", "out/mice.html")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mice.html", "trace.tsv"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("report.html", [], "report.html is not a report and is not overwritten"),
        ("trace.tsv", [], "trace.tsv is not a report and is not overwritten"),
        ("x", ["-o", "nowhere/r.html"], "There is no folder"),
        ("x", ["-o", "trace.tsv"], "is the name of the table"),
        ("x", ["--pipeline", "other"], "no pipeline named 'other' was run here"),
    ],
)
def test_nothing_else_is_overwritten(call, tmp_path, name, arguments, said):
    """BUGS 72: what cannot be written is said before anything is; no run depends on it."""
    (tmp_path / name).write_text("<html>mine</html>")
    status, _, err = call(*arguments)
    assert status == 2
    assert said in err
    assert (tmp_path / name).read_text() == "<html>mine</html>"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".canard", name, "work"])


def test_without_a_state_it_is_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke(["report"]) == 2


def test_beside_a_going_run_and_after_it(tmp_path):
    lay_out(tmp_path, A="ok", B="bad reads")
    (tmp_path / "hold").touch()
    run = start(tmp_path, "run", "pipe.py", "s.csv", "--param", f"hold={tmp_path / 'hold'}")
    try:
        wait_until(lambda: list(tmp_path.glob("work/*/*/copy/attempt-1/stdout.log")), 30)
        going = canard(tmp_path, "report")
        assert going.returncode == 0, going.stderr
        assert "A run is going on since" in (tmp_path / "report.html").read_text()
    finally:
        (tmp_path / "hold").unlink()
        assert run.wait(60) == 1
    assert canard(tmp_path, "report").returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert "1 sample: exit in count, exit code 3" in page
    assert "it is bad" in page
    assert len((tmp_path / "trace.tsv").read_text().splitlines()) == 1 + 5
