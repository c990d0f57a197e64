"""The programs of test_served_processes.py: a server, and a worker that lives through the server's restarts.

``python served_program.py serve PATH URI`` and ``python served_program.py work URI FILE SLOTS``; the token is in the
variable CANARD_TOKEN. A line of FILE tells of each effect (``ran``) and of each value that a step returned (``seen``).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import canard_pipe
from canard_pipe.engine.worker import Worker

PATIENCE_SECONDS = 60.0


def serve(path: str, uri: str, token: str) -> None:
    with canard_pipe.serve(path, uri, token, sweep_seconds=0.2, wait_seconds=20):
        print("serving", flush=True)
        sys.stdin.readline()


def connected(uri: str, token: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return canard_pipe.connect(uri, token)
        except canard_pipe.StorageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def work(uri: str, token: str, file: Path, slots: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def told(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    def three_steps(_given: Any, ctx: Any) -> None:
        for step in "abc":

            def effect(step: str = step) -> str:
                value = secrets.token_hex(8)
                told("ran", ctx.id, step, ctx.attempt, value)
                return value

            told("seen", ctx.id, step, ctx.attempt, ctx.step(step, effect))

    with connected(uri, token) as database:

        def is_back(_error: object) -> bool:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                with contextlib.suppress(canard_pipe.StorageError):
                    database.runtime()
                    return True
                time.sleep(0.1)
            return False

        Worker(
            database, {"three": three_steps}, slots=slots, lease_seconds=5, poll_seconds=0.1, away=is_back,
            on_result=lambda _outcome: None,
        ).work()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3], os.environ["CANARD_TOKEN"])
    else:
        work(sys.argv[2], os.environ["CANARD_TOKEN"], Path(sys.argv[3]), int(sys.argv[4]))
