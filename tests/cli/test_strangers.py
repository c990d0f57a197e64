"""A run's server and those who should not get anything from it: strangers, proxies, readers of what is printed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.program import LOG, canard, environment, start
from tests.strangers import free_uri, strangers

PIPELINE = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

GO = Path(__file__).parent / "go"

class Row(SampleRow):
    sample: str

pipeline = Pipeline("asked", rows=Row, key="sample")

@pipeline.sample
def each(sample, ctx):
    out = ctx.step("wait", lambda: ctx.shell(
        "while [ ! -e {go} ]; do sleep 0.05; done; printenv http_proxy > out.txt || echo none > out.txt", go=GO,
        outputs=["out.txt"]))
    return ctx.publish({"out.txt": out / "out.txt"})
"""
# Has one message carried out that does not come to its end, and says when it has begun.
HOLD = """
import sys
from canard_pipe.engine.quack import RemoteConnection
begun = sys.argv[1]
uri, token = sys.stdin.readline().split()
RemoteConnection(uri, token, timeout_seconds=3600).query(
    f"COPY (SELECT 1) TO '{begun}'; SELECT sum(hash(a.range + b.range)) FROM range(10000000) a, range(1000000) b"
)
"""
SAMPLES = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "samples.csv").write_text("sample\n" + "\n".join(f"S{at}" for at in range(SAMPLES)) + "\n")
    return tmp_path


def run_that_listens(folder: Path, *more: str, **variables: str) -> tuple[Any, dict[str, str]]:
    run = start(folder, "run", "pipeline.py", "samples.csv", "--slots", "2", "--cpus", "2", *more, **variables)
    file = folder / ".canard" / "owner.json"
    wait_until(lambda: file.exists() and json.loads(file.read_text())["uri"], 40)
    assert file.stat().st_mode & 0o777 == 0o600
    return run, json.loads(file.read_text())


def test_a_run_is_unharmed_by_strangers_and_by_a_client_that_vanished_with_a_statement_at_work(folder):
    run, owner = run_that_listens(folder)
    begun = folder / "begun.csv"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(begun)], env=environment(), stdin=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdin is not None
        holder.stdin.write(f"{owner['uri']} {owner['token']}\n")
        holder.stdin.flush()
        wait_until(begun.exists, 40)
    finally:
        holder.kill()
        holder.communicate()
    with strangers(owner["uri"], 100):
        assert run.poll() is None
    (folder / "go").touch()
    assert run.wait(60) == 0, (folder / LOG).read_text()
    assert len(list(folder.glob("results/*/out.txt"))) == SAMPLES
    done = "SELECT count(*) AS n FROM canard_absurd.samples WHERE state = 'done'"
    assert json.loads(canard(folder, "sql", done, "--json").stdout) == [{"n": SAMPLES}]


def test_no_byte_of_run_worker_and_commands_goes_to_a_proxy_and_the_token_is_nowhere_to_be_read(folder):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.2)
        where = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        proxies: Any = {name: where for each in names for name in (each, each.upper())}
        run, owner = run_that_listens(folder, "--json", **proxies)
        worker = start(folder, "worker", "--slots", "2", "--cpus", "2", **proxies)
        wait_until(lambda: "working for" in (folder / LOG).read_text(), 40)
        shown = [Path(f"/proc/{process.pid}/cmdline").read_text() for process in (run, worker)]
        for line in (["status", "--json"], ["why", "S0", "--json"], ["sql", "FROM canard_absurd.runs", "--json"]):
            asked = canard(folder, *line, **proxies)
            assert asked.returncode == 0, asked.stderr
            shown += [asked.stdout, asked.stderr]
        (folder / "go").touch()
        assert (run.wait(60), worker.wait(60)) == (0, 0), (folder / LOG).read_text()
        with pytest.raises(TimeoutError):
            proxy.accept()
    assert {path.read_text().strip() for path in folder.glob("results/*/out.txt")} == {where}  # commands keep it
    assert canard(folder, "report").returncode == 0
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("owner.json", "state.duckdb")]
    assert {folder / LOG, folder / ".canard" / "status.json"} <= set(files)
    assert any(path.suffix == ".html" for path in files)
    token = owner["token"]
    assert [text for text in shown if token in text] == []
    assert [path for path in files if token.encode() in path.read_bytes()] == []


def test_a_server_for_other_machines_says_what_its_token_grants_and_refuses_others(folder):
    (folder / "token.txt").write_text("a-token-of-our-own\n")
    (folder / "wrong.txt").write_text("another-token\n")
    host, port = free_uri().removeprefix("quack:").split(":")
    server = start(
        folder, "serve", "--bind", f"0.0.0.0:{port}", "--beyond-this-machine", "--token-file", "token.txt"
    )
    try:
        log = folder / LOG
        wait_until(lambda: "serving" in log.read_text() or server.poll() is not None, 40)
        assert "can execute any SQL" in log.read_text()
        assert "a-token-of-our-own" not in log.read_text()
        wrong = canard(folder, "worker", "--connect", f"quack:{host}:{port}", "--token-file", "wrong.txt")
        assert (wrong.returncode, "refuses the token" in wrong.stderr) == (3, True), wrong.stderr
        right = canard(folder, "worker", "--connect", f"quack:{host}:{port}", "--token-file", "token.txt")
        assert (right.returncode, "knows no run yet" in right.stderr) == (2, True), right.stderr
    finally:
        server.terminate()
        server.wait(30)
