"""TLS in front of an owner, as a proxy ends it (docs/shared.md): trusted, not trusted, for another name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canard_pipe
from tests.conftest import require_tool, wait_until
from tests.relay import connected
from tests.strangers import free_uri

ROOT = Path(__file__).resolve().parents[2]


def reached(port: int) -> bool:
    try:
        connected(f"tcp:{port}").close()
    except OSError:
        return False
    return True


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Any]:
    """A server, the port of the proxy before it, and the proxy's certificate, which is for the name localhost."""
    key, certificate = tmp_path / "key.pem", tmp_path / "head.pem"
    subprocess.run(
        [require_tool("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    port = int(free_uri().rpartition(":")[2])
    with canard_pipe.serve(tmp_path / "state.duckdb") as server:
        behind = str(server.uri).rpartition(":")[2]
        proxy = subprocess.Popen(
            [sys.executable, "-m", "tests.relay", f"tcp:{port}", f"tcp:{behind}", str(certificate), str(key)], cwd=ROOT
        )
        try:
            wait_until(lambda: reached(port), 20)
            yield server, port, certificate
        finally:
            proxy.kill()
            proxy.wait()


def test_a_worker_behind_tls_trusts_the_certificate_that_it_was_given(site):
    server, port, certificate = site
    with canard_pipe.connect(f"quack:localhost:{port}", server.token, tls=certificate) as db:
        db.spawn("job", 20, id="t")
        handlers = {"job": lambda given, ctx: ctx.step("more", lambda: given + 1)}
        assert canard_pipe.work(db, handlers, idle_timeout=0) == 1
    assert server.result("t") == 21


def test_what_is_not_trusted_gets_no_token(site):
    server, port, certificate = site
    for name, tls in (("localhost", True), ("127.0.0.1", certificate)):
        with pytest.raises(canard_pipe.StorageError, match="not trusted, or is for another name; nothing was sent"):
            canard_pipe.connect(f"quack:{name}:{port}", server.token, tls=tls)
    with pytest.raises(canard_pipe.StorageError, match="does not speak TLS; nothing was sent"):
        canard_pipe.connect(server.uri, server.token, tls=True)
    with pytest.raises(canard_pipe.StorageError):  # plain HTTP
        canard_pipe.connect(f"quack:localhost:{port}", server.token)
    with pytest.raises(canard_pipe.InputError, match="is not there"):
        canard_pipe.connect(f"quack:localhost:{port}", server.token, tls="absent.pem")
