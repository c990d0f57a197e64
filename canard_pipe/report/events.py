"""Events of a run as JSON lines, for those who watch from outside. The lines are described in docs/events.md."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from canard_pipe.errors import InputError
from canard_pipe.report.wording import instant_text

VERSION = 1


class EventLines:
    """An observer that writes one JSON object per event; ``write`` takes a line and hands it on at once.

    Every object has ``version``, ``run_id`` (null before the run has one), ``number`` (1, 2, ... within this process),
    ``at`` (UTC) and ``event``. ``now_us`` is the wall clock.
    """

    def __init__(self, write: Callable[[bytes], object], now_us: Callable[[], int]) -> None:
        self._write, self._now_us = write, now_us
        self._lock = threading.Lock()
        self._number = 0
        self._run_id: object = None

    def planned(self, lines: Sequence[str]) -> None:
        """Nothing: the event ``planned`` has it with its counts."""

    def step(self, kind: str, sample: str, step: str) -> None:
        self.event("step_saved", {"kind": kind, "sample": sample, "step": step})

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        self.event("state", {"kind": kind, "sample": sample, "state": state, "detail": detail or None})

    def snapshot(self, state: dict[str, Any]) -> None:
        """Nothing: status.json has it."""

    def note(self, text: str) -> None:
        self.event("note", {"text": text})

    def event(self, name: str, facts: dict[str, Any]) -> None:
        with self._lock:
            self._number += 1
            self._run_id = facts.get("run_id", self._run_id)
            head = {
                "version": VERSION, "run_id": self._run_id, "number": self._number,
                "at": instant_text(self._now_us()), "event": name,
            }  # fmt: skip
            text = json.dumps(head | facts, default=str)  # ASCII: also what is no Unicode gets through
            self._write(text.encode("ascii") + b"\n")


class EventFile:
    """A file that lines are added to, each whole, with one call of the system where it takes it.

    What cannot be written now (a full disk, a pipe whose reader is slow) is left out and ``trouble`` is told once; the
    members ``number`` of the lines show the gap. A line that was cut is finished before the next begins. Not safe for
    several threads at once.
    """

    def __init__(self, descriptor: int, name: str, trouble: Callable[[str], object]) -> None:
        self._descriptor, self._name, self._trouble = descriptor, name, trouble
        self._rest = b""
        self._lost = 0

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._finish_line()
        with contextlib.suppress(OSError):  # some file systems tell only now that the disk is full
            os.close(self._descriptor)
        self._lost += bool(self._rest)
        if self._lost:
            self._trouble(f"{self._lost} events of this run are not in {self._name}")

    def write(self, line: bytes) -> None:
        """Add a line; leave it out where that cannot be done."""
        try:
            self._finish_line()  # of one that was cut
        except OSError as error:
            self._lose(error)
            return
        self._rest = line
        try:
            self._finish_line()
        except OSError as error:
            if self._rest is line:  # nothing of it is there
                self._rest = b""
                self._lose(error)

    def _lose(self, error: OSError) -> None:
        self._lost += 1
        if self._lost == 1:
            self._trouble(f"events cannot be written to {self._name}: {error.strerror}; the run goes on")

    def _finish_line(self) -> None:
        while self._rest:
            self._rest = self._rest[os.write(self._descriptor, self._rest) :]


def open_events(path: Path | None, trouble: Callable[[str], object]) -> EventFile:
    """Open the file that events are added to, making it if it is not there; None is standard output.

    A last line that a crash has cut gets its end. Raises InputError where nothing can be written.
    """
    if path is None:
        return EventFile(os.dup(1), "standard output", trouble)
    try:
        # A named pipe without a reader is an error and one with a slow reader does not stop the run.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        file = EventFile(descriptor, str(path), trouble)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _is_cut(path):
            file.write(b"\n")
    except OSError as error:
        raise InputError(
            f"events cannot be written to {path}: {error.strerror}. Name another file with --events, or none"
        ) from error
    return file


def _is_cut(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
