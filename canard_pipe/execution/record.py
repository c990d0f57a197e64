"""How a try ended: what its ``status.json`` says, read strictly."""

from __future__ import annotations

import datetime
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.execution import procfs

FILE = "status.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which command this is: the ``ordinal``-th (from 1) of a step of a task. ``step`` is "" outside of any step.

    ``origin`` tells one database from another, so that a fresh one does not take over what it finds in old folders.
    """

    task: str
    step: str
    ordinal: int
    origin: str


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """How one member of a pipe ended: exit code or signal (by name)."""

    argv: tuple[str, ...]
    exit_code: int | None
    signal: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """The end of one try.

    ``ended_by`` is itself, timeout, memory (it used more than it had asked for), lost or stop (the run's wish),
    terminated (by a scheduler), or interrupted (the launcher died, then it is never on disk; or a cluster ended the job
    for no fault of the command). ``exit_code`` and ``signal`` are those of the member that decides, both None after
    timeout and memory. ``cause`` is not_found or not_executable if nothing ran, or what a scheduler has done (see
    causes.py); ``error`` says more. ``oom``: memory ran out, as ``evidence`` shows. Peak memory is that of the whole
    tree at once, as far as looks at intervals tell; bytes are those read from and written to storage, caches and pipes
    not counted. ``outputs`` holds the size that each declared output had, ``job_id`` that of a scheduler.
    """

    identity: Identity
    token: str
    digest: str
    ended_by: str
    exit_code: int | None
    signal: str | None
    members: tuple[MemberEnd, ...] = ()
    cause: str | None = None
    error: str | None = None
    started_us: int | None = None
    ended_us: int | None = None
    host: str | None = None
    boot_id: str = ""
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    oom: bool = False
    evidence: str | None = None
    left_over: int = 0
    outputs: tuple[tuple[str, int | None], ...] = ()
    job_id: str | None = None

    @property
    def by_itself(self) -> bool:
        """The command ended by itself: this is its outcome."""
        return self.ended_by == "itself"

    @property
    def succeeded(self) -> bool:
        """It ended by itself, with 0."""
        return self.by_itself and self.exit_code == 0 and self.signal is None

    def outputs_as_recorded(self, folder: Path) -> bool:
        """Tell whether the outputs are what they were when the command ended.

        Nothing of a folder is flushed to the disk when a command ends, so after a reboot sizes tell; without
        declared outputs nothing does.
        """
        if not self.outputs and self.job_id is not None:
            return True  # written on another machine, to a disk that both see
        if not self.outputs:
            return self.boot_id == procfs.boot_id()
        return not self.differences(folder)

    def differences(self, folder: Path) -> list[str]:
        """Return in which outputs the folder does not hold what the machine of the command has recorded."""
        found = ((name, size, size_of(folder / name)) for name, size in self.outputs)
        return [
            f"the output {name} has {here} bytes here, and had {size} on {self.host} when its command ended"
            for name, size, here in found if here != size
        ]


def parse(content: Any) -> Record:
    """Return the record that a decoded status.json holds. Raises ValueError if it is not one."""
    try:
        members = tuple(
            MemberEnd(
                tuple(_text(item) for item in member["argv"]),
                _optional(member["exit_code"], int),
                _optional(member["signal"], str),
            )
            for member in content["members"]
        )
        if content["version"] != 1:
            raise ValueError(f"version {content['version']!r}")
        return Record(
            Identity(
                _text(content["task"]), str(content["step"]), int(content["ordinal"]), _text(content["origin"])
            ),
            token=_text(content["token"]),
            digest=_text(content["digest"]),
            ended_by=_text(content["ended_by"]),
            exit_code=_optional(content["exit_code"], int),
            signal=_optional(content["signal"], str),
            members=members,
            cause=_optional(content["cause"], str),
            error=_optional(content["error"], str),
            started_us=None if content["started_at"] is None else _microseconds(content["started_at"]),
            ended_us=None if content["ended_at"] is None else _microseconds(content["ended_at"]),
            host=_text(content["host"]),
            boot_id=str(content["boot_id"]),
            peak_memory_bytes=_optional(content["peak_memory_bytes"], int),
            cpu_seconds=float(content["cpu_seconds"]),
            read_bytes=_optional(content.get("read_bytes"), int),
            written_bytes=_optional(content.get("written_bytes"), int),
            oom=content["oom"] is True,
            evidence=_optional(content.get("evidence"), str),
            left_over=int(content["left_over"]),
            outputs=tuple((name, _optional(size, int)) for name, size in content["outputs"].items()),
            job_id=_optional(content.get("job_id"), str),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the record of a command: {error!r}") from error


def read(folder: Path, identity: Identity) -> Record | None:
    """Return the record in the folder of a try; None if there is none, or a broken one, or another command's."""
    try:
        record = parse(json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError):
        return None
    return record if record.identity == identity else None


def size_of(path: Path) -> int | None:
    """Return the size of a file, or of all files of a folder together; None if it is not there."""
    if path.is_dir():
        return sum(size_of(Path(parent, name)) or 0 for parent, _, names in os.walk(path) for name in names)
    try:
        return path.stat().st_size
    except OSError:
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not text")
    return value


def _optional(value: Any, kind: type[Any]) -> Any:
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _microseconds(text: str) -> int:
    instant = datetime.datetime.fromisoformat(text)
    return math.floor(instant.timestamp()) * 1_000_000 + instant.microsecond
