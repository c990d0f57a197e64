"""Dies by SIGKILL at each commit of a scenario: ``python -m tests.laws.victim FOLDER SCENARIO``.

Just before it is executed and just after it. Each death is a process of its own, forked before any database is open,
with a file of its own below FOLDER. Prints one JSON line: the snapshots after each commit of an undisturbed run, and
for each death its folder, its moment and how many transactions of the call were committed by then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canard_pipe.engine.store import Rows
from tests.laws.scenarios import SCENARIOS, Scenario, Stage, snapshot


class Calls:
    """An ``intercept`` that counts the calls of the scenario's act, once ``armed``, and kills at one of them."""

    def __init__(self, die_at: tuple[int, str] | None = None) -> None:
        self.armed, self.die_at = False, die_at
        self.names: list[str] = []
        self.committed: Callable[[], object] = lambda: None

    def __call__(self, name: str, execute: Callable[[], Rows]) -> Rows:
        if not self.armed:
            return execute()
        at = len(self.names)
        self.names.append(name)
        if self.die_at == (at, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        rows = execute()
        if self.die_at == (at, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "commit":
            self.committed()
        return rows


def play(folder: Path, scenario: Scenario, calls: Calls) -> list[Any]:
    """Run a scenario; return the snapshots before its act and after each commit of it."""
    folder.mkdir(parents=True)
    stage = Stage(folder, calls)
    scenario.before(stage)
    snapshots = [snapshot(stage.db)]
    calls.committed = lambda: snapshots.append(snapshot(stage.db))
    calls.armed = True
    scenario.act(stage)
    calls.armed = False
    return snapshots


def in_a_child(act: Callable[[], object]) -> int:
    """Fork, do ``act`` in the child, and return how the child ended."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)  # without closing anything
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(base: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    told = base / "undisturbed.json"

    def undisturbed() -> None:
        calls = Calls()
        snapshots = play(base / "undisturbed", scenario, calls)
        told.write_text(json.dumps({"snapshots": snapshots, "names": calls.names}))

    assert in_a_child(undisturbed) == 0
    found = json.loads(told.read_text())
    points = []
    commits = 0
    for at, call in enumerate(found["names"]):
        for moment in ("before", "after") if call == "commit" else ():
            folder = base / f"{at}-{moment}"
            calls = Calls((at, moment))
            end = in_a_child(lambda folder=folder, calls=calls: play(folder, scenario, calls))  # type: ignore[misc]
            assert end == -signal.SIGKILL, (call, moment, end)
            commits += moment == "after"
            points.append({"folder": folder.name, "moment": moment, "commits": commits})
    print(json.dumps({"snapshots": found["snapshots"], "points": points}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
