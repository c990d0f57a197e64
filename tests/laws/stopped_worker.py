"""A worker over a connection that is stopped in its handler, and then tries all it can: see test_processes.py.

``python -m tests.laws.stopped_worker URI FOLDER``; the token is in CANARD_TOKEN. FOLDER/started tells that the handler
runs, and FOLDER/go lets it go on. Prints what became of each try.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canard_pipe
from canard_pipe.engine.worker import Worker


def main(uri: str, folder: Path) -> None:
    def said(what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except canard_pipe.CanardError as error:
            print(what, type(error).__name__, flush=True)
        else:
            print(what, "written", flush=True)

    def handler(_given: Any, ctx: Any) -> None:
        ctx.step("first", lambda: ctx.attempt)
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        ctx._deadline_us += 10**12  # what it knows itself must not be what protects the database
        said("heartbeat", ctx.heartbeat)
        ctx.lost.clear()
        said("step", lambda: ctx.step("second", lambda: "stale"))
        for what, act in {
            "sleep": lambda: ctx.sleep("z", 1), "fail": lambda: ctx.fail("stale"), "complete": lambda: ctx.complete(1),
        }.items():
            ctx.lost.clear()
            said(what, act)
        ctx.lost.clear()

    with canard_pipe.connect(uri, os.environ["CANARD_TOKEN"]) as database:
        outcomes: list[str] = []
        Worker(
            database, {"job": handler}, lease_seconds=1.0, on_result=lambda outcome: outcomes.append(outcome.status)
        ).work(max_tasks=1)
    print("outcome", *outcomes, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
