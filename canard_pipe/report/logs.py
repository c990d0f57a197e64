"""The logs of a sample: the latest try of each of its commands; whole, or followed while it runs."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.engine.mapping import root_of
from canard_pipe.errors import InputError
from canard_pipe.execution.folders import attempts, safe_name
from canard_pipe.pipeline.access import View
from canard_pipe.report.items import ItemRow
from canard_pipe.report.rows import PlanRow, find_row

LOGS = ("stdout.log", "stderr.log")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one log file, in order; ``folder`` is the folder of the try."""

    folder: Path
    name: str
    text: str


def latest_tries(
    view: View, name: str, step: str | None = None, *, may_come: bool = False
) -> tuple[PlanRow, list[Path]]:
    """Return the row called ``name`` and the folders of the latest try of each of its commands, the oldest first.

    Those that run now and those that the database does not know yet are found on disk. Raises InputError if the name
    or the step is not known; with ``may_come`` a step that is not known yet has no tries.
    """
    run, row = find_row(view, name)
    jobs = [] if row.seq is None else view.query("report_jobs", seq=row.seq)
    places = {(view.root / job[6]).parent: str(job[1]) for job in jobs}
    of_items: dict[Path, ItemRow] = {}
    for each in row.items:
        for job in view.query("report_jobs", seq=each.seq):
            place = (view.root / job[6]).parent
            places[place], of_items[place] = f"{each.path} {job[1]}".rstrip(), each
    live = view.source == "live"
    for item in (view.snapshot or {}).get("running") or [] if live else []:
        if item.get("folder") and root_of(str(item.get("task_id"))) == row.task_id:
            place = (view.root / str(item["folder"])).parent
            places[place] = f"{item.get('item') or ''} {item.get('step') or ''}".strip()
            of_items.update((place, each) for each in row.items if each.task_id == item["task_id"])
    if run is not None and row.folder:
        again = "" if row.generation == 1 else f"generation-{row.generation}"
        for place in _on_disk(run.folder("work") / safe_name(run.pipeline) / again / row.folder):
            places.setdefault(place, place.name)
    if step is not None:
        chosen = {
            place: of for place, of in places.items()
            if step in (of, place.name) or (place in of_items and _means(step, of_items[place]))
        }
        if not chosen and not may_come:
            known = ", ".join(dict.fromkeys(places.values())) or "none"
            raise InputError(f"{name} has no command in a step {step!r}; steps with commands: {known}")
        places = chosen
    tries = [found_tries[-1].folder for place in places if (found_tries := attempts(place))]
    return row, sorted(tries, key=_begun)


def _means(step: str, item: ItemRow) -> bool:
    return step in (item.map, item.key, item.path) or item.path.startswith(f"{step}/")


def whole(folders: Sequence[Path]) -> Iterator[Piece]:
    """Yield the text of every log in the folders of tries."""
    for folder in folders:
        for name in LOGS:
            yield from _Tail(folder, name).rest(last=True)


def files_of(folder: Path) -> dict[str, Any]:
    """Describe the logs of a try for machines; ``bytes`` is None where one is not there."""
    found: dict[str, Any] = {"folder": str(folder)}
    for name in LOGS:
        file = folder / name
        stream = name.removesuffix(".log")
        found[stream] = {"file": str(file), "bytes": file.stat().st_size if file.exists() else None}
    return found


def follow(
    look: Callable[[], tuple[Sequence[Path], bool]], wait: Callable[[], None], *, look_every: int = 5
) -> Iterator[Piece]:
    """Yield what the logs hold and what is added to them, until the sample has come to its end.

    ``look`` returns the folders of the latest tries, and whether nothing more will come; it is called at every
    ``look_every``-th look at the files. ``wait`` is called between two looks.
    """
    tails: dict[tuple[Path, str], _Tail] = {}
    looks = 0
    over = False
    while True:
        if looks % look_every == 0:
            folders, over = look()  # before the last look at the files, so that nothing is left out
            for folder in folders:
                for name in LOGS:
                    tails.setdefault((folder, name), _Tail(folder, name))
        for tail in tails.values():
            yield from tail.rest(last=over)
        if over:
            return
        looks += 1
        wait()


class _Tail:
    """One log file and how far it was read."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._offset = 0
        # It keeps the bytes of a character that is not complete yet.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def rest(self, *, last: bool) -> Iterator[Piece]:
        """Yield what was added since; bytes that are not UTF-8 become replacement characters."""
        try:
            file = (self._folder / self._name).open("rb")
        except OSError:
            return
        with file:
            file.seek(self._offset)
            while chunk := file.read(_CHUNK):
                self._offset += len(chunk)
                yield from self._piece(chunk, final=False)
        if last:
            yield from self._piece(b"", final=True)

    def _piece(self, data: bytes, *, final: bool) -> Iterator[Piece]:
        text = self._decoder.decode(data, final)
        if text:
            yield Piece(self._folder, self._name, text)


def _on_disk(task_folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(task_folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _begun(folder: Path) -> float:
    try:
        return (folder / "command.sh").stat().st_mtime
    except OSError:
        return 0.0
