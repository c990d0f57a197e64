"""What may be removed from the work folder, and its removal. Decided from the database as it is now (BUGS 27).

Kept always: everything of a task that has not come to its end, of a once function, or with a result that is not in its
place yet; tries with files that the *result* of a task names, since functions after it are given it, also in later
runs; the latest try of each command of a failed task. What is removed of a finished sample is made again if a retry
goes back to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.engine.values import Codec
from canard_pipe.execution import record
from canard_pipe.pipeline.settling import Reading, left_over
from canard_pipe.pipeline.staging import discard

FINISHED, FAILED, ORPHAN, STAGING = "finished", "failed", "orphan", "staging"
_ENDED_TRIES = ("done", "failed", "interrupted")
_FINAL = ("completed", "failed", "cancelled")
_TRY = re.compile(r"(.*/attempt-[1-9]\d*)(?:/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Removable:
    """A folder of a try, or what is left of a publication, that may go.

    ``why`` is finished, failed, orphan or staging; ``size`` in bytes is what is freed.
    """

    why: str
    sample: str
    folder: Path
    size: int


@dataclass(frozen=True, slots=True)
class _Try:
    folder: str
    step: str
    ordinal: int
    number: int
    state: str
    ended_us: int | None
    seq: int
    task_state: str
    root_seq: int
    root_state: str
    kind: str | None
    sample_state: str | None
    sample: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where the runs of a state have worked and published, and where the state is."""

    root: Path
    state: Path
    works: tuple[Path, ...]
    results: tuple[Path, ...]


def places(reading: Reading, root: Path, state: Path) -> Places:
    """Return the places of all runs that the state knows."""
    codec = Codec(root)
    settings = [json.loads(row[0]) for row in reading.query("settings_of_runs")]

    def folders(name: str) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(codec.decode(json.dumps(each[name])) for each in settings))

    return Places(root, state, folders("work"), folders("results"))


def everything(reading: Reading, where: Places, *, older_than_us: int) -> list[Removable]:
    """Return all that may go, tries and staging files; see :func:`removable`."""
    found = removable(reading, where.root, where.works, older_than_us=older_than_us)
    left = dict.fromkeys(path for results in where.results for path in left_over(reading, where.state, results))
    return found + [Removable(STAGING, path.name, path, size_of(path)) for path in left]


def removable(
    reading: Reading, root: Path, works: Sequence[Path], *, older_than_us: int, task: int | None = None
) -> list[Removable]:
    """Return the folders of tries that may go.

    ``root`` is the launch folder, ``works`` the folders of tries: nothing outside of them is ever named.
    ``older_than_us``: failed tries that ended before this instant go too. ``task``: only what belongs to the task of
    this number, which has just completed in this process, and no orphans.
    """
    tries = [_Try(*row) for row in reading.query("recorded_tries", root=task)]
    # What has just completed has its results in their place, though the record that says so may still be on its way.
    unpublished = set() if task is not None else {row[0] for row in reading.query("unpublished_tasks")}
    used = {folder for (text,) in reading.query("results_in_use", root=task) for folder in _tries_in(text)}
    latest: dict[tuple[int, str, int], int] = {}
    for each in tries:
        place = (each.seq, each.step, each.ordinal)
        latest[place] = max(latest.get(place, 0), each.number)
    found = []
    for each in tries:
        folder = root / each.folder
        last = latest[each.seq, each.step, each.ordinal] == each.number
        why = _why(each, older_than_us, last=last, unpublished=each.root_seq in unpublished)
        if why is not None and each.folder not in used and str(folder) not in used and _inside(folder, works):
            found.append(Removable(why, each.sample, folder, size_of(folder)))
    if task is None:
        found += _orphans(reading, works, {root / each.folder for each in tries})
    return found


def _why(each: _Try, older_than_us: int, *, last: bool, unpublished: bool) -> str | None:
    if unpublished or each.kind == "once" or each.state not in _ENDED_TRIES:
        return None
    if each.task_state not in _FINAL or each.root_state not in _FINAL:
        return None
    if each.sample_state in ("done", "skipped", "retired", None):
        return FINISHED
    old = each.ended_us is not None and each.ended_us < older_than_us
    given_up = each.sample_state in ("failed", "cancelled") and each.state != "done"
    return FAILED if given_up and old and not last else None


def _tries_in(text: str) -> Iterator[str]:
    """Yield the folders of tries that any text of an encoded value lies in."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, item in value.items():
                yield key
                yield from texts(item)
        elif isinstance(value, list):
            for item in value:
                yield from texts(item)

    for each in texts(json.loads(text)):
        if match := _TRY.fullmatch(each):
            yield match[1]


def _orphans(reading: Reading, works: Sequence[Path], known: set[Path]) -> Iterator[Removable]:
    """Yield ended tries of this state, by their own record, whose task the database has not.

    Another state's are not ours to judge; nor is a try without a record, which may be at work.
    """
    origin = str(reading.query("database_origin")[0][0])
    tasks = {str(row[0]) for row in reading.query("every_task")}
    for work in works:
        for script in sorted(work.rglob("attempt-*/command.sh")):
            folder = script.parent
            if folder in known:
                continue
            try:
                found = record.parse(json.loads((folder / record.FILE).read_bytes()))
            except (OSError, ValueError):
                continue
            if found.identity.origin.partition(":")[0] == origin and found.identity.task not in tasks:
                yield Removable(ORPHAN, found.identity.task, folder, size_of(folder))


def remove(found: Iterable[Removable], works: Sequence[Path]) -> int:
    """Remove folders, and those above them that are empty then; return how many bytes were freed."""
    freed = 0
    for each in found:
        if each.why == STAGING:
            discard(each.folder)
        else:
            shutil.rmtree(each.folder, ignore_errors=True)
        if not each.folder.exists():
            freed += each.size
        above = each.folder.parent
        while above not in works and _inside(above, works):
            try:
                above.rmdir()
            except OSError:  # not empty
                break
            above = above.parent
    return freed


def drop(reading: Reading, root: Path, work: Path, id: str) -> int:
    """Remove what the commands of one finished task have left, except what its result names; return the bytes."""
    rows = reading.query("task_versions", ids=json.dumps([id]))
    found = [each for row in rows for each in removable(reading, root, [work], older_than_us=0, task=row[1])]
    return remove(found, [work])


def size_of(folder: Path) -> int:
    """Return how many bytes the removal of a folder frees: a file with another name elsewhere frees nothing."""
    if not folder.is_dir():
        with contextlib.suppress(OSError):
            return folder.lstat().st_size
        return 0
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                seen = os.lstat(os.path.join(above, name))  # noqa: PTH118 - texts
                total += seen.st_size if seen.st_nlink == 1 else 0
    return total


def _inside(folder: Path, works: Sequence[Path]) -> bool:
    return folder.is_dir() and not folder.is_symlink() and any(
        folder.resolve().is_relative_to(work.resolve()) for work in works
    )  # fmt: skip
