"""What becomes of published files after a crash or by hand: finish, sweep, verify."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from canard_pipe.pipeline import outputs, placing
from canard_pipe.pipeline.outputs import AcceptId, Database, Output
from canard_pipe.pipeline.placing import At
from canard_pipe.pipeline.refusals import explained
from canard_pipe.pipeline.staging import Content, KeepAlive, discard, glance, measure, sync_folder
from canard_pipe.pipeline.targets import STAGING_IN_RESULTS

Write = Callable[[str, Sequence[dict[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done about one accepted row.

    ``action``: placed (renamed now), found (it was in its place), dropped (staged file gone, target something
    else: the step makes it again), removed and kept (a result no longer; kept where it was changed by hand), busy
    (another process is at it), refused (the file system does not let us; the row stays). ``detail`` is a sentence
    for people.
    """

    target: str
    task_id: str | None
    action: str
    detail: str


@dataclass(frozen=True, slots=True)
class Deviation:
    """A published target that is not as it was published."""

    target: str
    task_id: str | None
    problem: str


def settle(output: Output, root: Path, results: Path, write: Write, at: At, keep_alive: KeepAlive) -> Settled:
    """Finish one accepted row by its record; ``write`` executes a statement with rows."""
    try:
        action, detail = _settle(output, root, results, at, keep_alive)
    except BlockingIOError:
        action, detail = "busy", "another process is putting it in its place; retry"
    except OSError as error:
        action, detail = "refused", str(explained(error, output.target, "finish", results))
    if action in ("placed", "found"):
        write("publish_outputs", [output.named()])
    elif action == "dropped":
        write("drop_outputs", [output.named()])
        discard(root / output.staging)
    return Settled(output.target, output.task_id, action, detail)


def _settle(output: Output, root: Path, results: Path, at: At, keep_alive: KeepAlive) -> tuple[str, str]:
    staged, target = root / output.staging, results / output.target
    replaces = os.path.lexists(target)
    if _resembles(staged, output.content) and placing.place(
        staged, target, replace=True, at=at, is_new=lambda: holds(staged, output.content, keep_alive)
    ):
        sync_folder(target.parent)
        return "placed", "it replaced what was there" if replaces else "it was put in its place"
    if holds(target, output.content, keep_alive):
        sync_folder(target.parent)
        discard(staged)  # after an exchange this is the predecessor
        discard(placing.aside_of(staged))
        return "found", "it was in its place"
    return "dropped", "its staged file is gone; it will be made again"


def retire(output: Output, results: Path, write: Write, keep_alive: KeepAlive) -> Settled:
    """Take away a published file that is a result no longer, and its record; what was changed by hand stays.

    A death in between leaves the record, and the next call finds the file gone.
    """
    path = results / output.target
    if not os.path.lexists(path):
        action, detail = "removed", "is a result no longer"
    elif holds(path, output.content, keep_alive):
        try:
            discard(path)
            sync_folder(path.parent)
        except OSError as error:
            refused = explained(error, output.target, "remove", results)
            return Settled(output.target, output.task_id, "refused", str(refused))
        action, detail = "removed", f"is a result no longer and was removed; it was made from {output.source}"
    else:
        action, detail = "kept", "is a result no longer, but was changed by hand: it stays"
    write("retire_outputs", [output.named()])
    return Settled(output.target, output.task_id, action, detail)


def holds(path: Path, content: Content, keep_alive: KeepAlive) -> bool:
    """Tell whether ``path`` holds exactly ``content``. It is read only if its size fits."""
    return _resembles(path, content) and measure(path, keep_alive) == content


def _resembles(path: Path, content: Content) -> bool:
    try:
        seen = glance(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (seen.kind, seen.size) == (content.kind, content.size)


class Reading(Protocol):
    """Where rows are read: the database itself, or a look at it from outside."""

    def query(self, name: str, **params: Any) -> list[tuple[Any, ...]]: ...


def left_over(reading: Reading, state: Path, results: Path) -> list[Path]:
    """Return the staging files that neither an accepted row nor a running attempt needs."""
    found = [
        path
        for folder in (state / "staging", results / STAGING_IN_RESULTS)
        if folder.is_dir()
        for path in sorted(folder.iterdir())
    ]
    running = {(seq, attempt) for seq, attempt in reading.query("running_attempts")}  # remote workers go on
    rows = reading.query("accepted_outputs", task_seq=None)
    needed = {Path(Output(*row).staging).name for row in rows}
    free = []
    for path in found:
        accept_id = AcceptId.parse(path.name)
        if accept_id is None or str(accept_id) in needed:
            continue
        if (accept_id.task_seq, accept_id.attempt) not in running:
            free.append(path)
    return free


def sweep(database: Database, state: Path, results: Path) -> list[Path]:
    """Remove staging files that neither an accepted row nor a running attempt needs; return them."""
    removed = left_over(database, state, results)
    for path in removed:
        discard(path)
    if not database.query("running_attempts"):
        with contextlib.suppress(OSError):  # not there, or not empty
            (results / STAGING_IN_RESULTS).rmdir()
    return removed


def deviations(
    database: Database, results: Path, *, thorough: bool, keep_alive: KeepAlive
) -> list[Deviation]:
    """Return the published targets that are gone or differ in kind or size, with ``thorough`` in any byte."""
    found: list[Deviation] = []
    for output in outputs.published(database):
        path = results / output.target
        if not os.path.lexists(path):
            problem = "is gone"
        elif not _resembles(path, output.content):
            problem = "differs in kind or size from what was published"
        elif thorough and measure(path, keep_alive) != output.content:
            problem = "was changed after it was published"
        else:
            continue
        found.append(Deviation(output.target, output.task_id, problem))
    return found
