"""A state made with the real engine: planned rows with tasks in every condition, as a run leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.pipeline.opening import open_state

PIPELINE = "germline"


@dataclass
class MadeState:
    """A state folder with its database open as the owner."""

    folder: Path
    launch: Path
    database: Database
    position: int = 0

    def sql(self, text: str) -> None:
        self.database.store.sql(text)

    def plan(
        self,
        key: str,
        *,
        kind: str = "sample",
        name: str = "call",
        task: bool = True,
        after: Sequence[str] = (),
        max_failures: int = 3,
        changed: bool = False,
        retired: bool = False,
        priority: int = 0,
    ) -> str:
        """Add a row to the plan, with its task; return the id of the task."""
        self.position += 1
        id = f"{PIPELINE}/{kind}/{key}/1"
        reason = quoted("column text") if changed else "NULL"
        after_list = "[" + ", ".join(quoted(each) for each in after) + "]::VARCHAR[]"
        self.sql(
            f"INSERT INTO canard_absurd.planned VALUES ({quoted(PIPELINE)}, {quoted(kind)}, {quoted(name)}, "
            f"{quoted(key)}, {quoted(key)}, {self.position}, {self.position + 1}, 1, {quoted(id) if task else 'NULL'}, "
            f"'d', {reason}, {after_list}, false, {changed}, {retired}, 'run-1')"
        )
        if task:
            self.database.spawn(name, {"key": key}, id=id, max_failures=max_failures, priority=priority)
        return id

    def claim(self, name: str = "call") -> Claim:
        claim = self.database.claim(names=[name])
        assert claim is not None
        return claim

    def failed(self, key: str, message: str, cause: dict[str, Any] | None = None, **row: Any) -> Claim:
        """Plan a sample whose task has failed for good."""
        self.plan(key, priority=1, **row)  # so that its task is the one that is claimed
        claim = self.claim()
        claim.step("align", lambda: "made")
        claim.fail(message, fatal=True, cause=cause)
        return claim

    def command(
        self,
        claim: Claim,
        step: str,
        *,
        exit_code: int | None = 1,
        signal: str | None = None,
        stderr: str = "",
        attempt: int = 1,
        cause: str | None = "exit",
        state: str = "failed",
        command: str = "bwa mem ref.fa A.fq",
    ) -> Path:
        """Record a command as the executor does, with its folder; return the folder."""
        relative = Path("work") / PIPELINE / claim.id.split("/")[2] / step / f"attempt-{attempt}"
        folder = self.launch / relative
        folder.mkdir(parents=True)
        (folder / "command.sh").write_text("#!/bin/sh\n")
        (folder / "stdout.log").write_text("")
        (folder / "stderr.log").write_text(stderr)
        self.sql(
            "INSERT INTO canard_absurd.jobs (task_seq, task_attempt, step, ordinal, attempt, executor, token, digest, "
            "folder, command, state, cause, exit_code, signal, peak_memory_bytes, host, started_at, ended_at) VALUES "
            f"({claim.seq}, {claim.attempt}, {quoted(step)}, 1, {attempt}, 'local', 't', 'd', {quoted(str(relative))}, "
            f"{quoted(command)}, {quoted(state)}, {quoted(cause)}, {exit_code if exit_code is not None else 'NULL'}, "
            f"{quoted(signal)}, 5000000, 'node1', now()::TIMESTAMP - INTERVAL 2 SECOND, now()::TIMESTAMP)"
        )
        return folder

    def run_row(self, *, ended: bool = True, pipeline: str = PIPELINE, run_id: str = "run-1") -> None:
        settings = {
            "work": {"$project": "work"},
            "results": {"$project": "results"},
            "cpus": None,
            "memory_bytes": None,
            "slots": None,
        }
        end = "now()::TIMESTAMP, 1" if ended else "NULL, NULL"
        self.sql(
            f"INSERT INTO canard_absurd.runs VALUES ({quoted(run_id)}, {quoted(pipeline)}, "
            """'{"$project":"pipeline.py"}', 'd', '{"$project":"samples.csv"}', '', '[]', """
            f"{quoted(json.dumps(settings))}, '{{}}', 'node1', 4242, now()::TIMESTAMP - INTERVAL 1 MINUTE, {end})"
        )


def quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def make(launch: Path) -> MadeState:
    """Make an empty state below ``launch``, open as its owner."""
    state = launch / ".canard"
    made = MadeState(state, launch, open_state(state, launch))
    made.run_row()
    return made
