"""The record that says who owns the state, and whether that process still lives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from canard_pipe.errors import StorageError

FORMAT = 1
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of one machine: a process number alone is used again.

    ``started`` is the process's start as its system tells it (Linux: ticks since boot), only to be compared.
    """

    host: str
    pid: int
    started: str
    boot_id: str

    @classmethod
    def here(cls) -> Identity:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, process_start(pid) or "", boot_id())

    def is_alive_here(self) -> bool:
        """Tell whether this very process runs on this machine now; False for any process of another host."""
        return (
            self.host == socket.gethostname()
            and self.boot_id == boot_id()
            and self.started == (process_start(self.pid) or "gone")
        )


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """What an owner tells about itself.

    ``since`` is ISO 8601, UTC. ``counter`` advances while it lives. ``uri`` and ``token`` are those of its server, None
    while it does not listen. ``released`` tells that it gave the state back; a dead owner could not.
    """

    identity: Identity
    counter: int
    since: str
    uri: str | None = None
    token: str | None = field(default=None, repr=False)
    released: bool = False

    @property
    def host(self) -> str:
        return self.identity.host

    @property
    def pid(self) -> int:
        return self.identity.pid

    def alive_here(self) -> bool:
        """Tell whether the owner is a living process of this machine that has not given the state back."""
        return not self.released and self.identity.is_alive_here()


def record_path(lock: Path) -> Path:
    """Return the place of the record that belongs to a lock file."""
    return lock.with_suffix(".json")


def read_owner(lock: Path) -> OwnerRecord | None:
    """Return the record beside the lock file; None if there is none or it is damaged.

    Raises StorageError if it may not be read, as when the state is another user's.
    """
    path = record_path(lock)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}", operation="own") from error
    try:
        return _decode(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


class Staged:
    """A record written beside its place, to be put there in one step. Use as a context manager.

    Left without :meth:`put`, nothing but the folder's time has changed. The name is this process's own, since two
    hosts may write at once.
    """

    def __init__(self, lock: Path, record: OwnerRecord) -> None:
        self._target = record_path(lock)
        self._path = self._target.with_name(f"{self._target.name}.{socket.gethostname()}.{os.getpid()}.new")
        self._text = json.dumps(_encode(record)) + "\n"

    def __enter__(self) -> Staged:
        try:
            self._path.unlink(missing_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text)
                file.flush()
                os.fsync(descriptor)  # else a power loss can leave it empty, and the dead owner unknown
        except OSError as error:
            self._path.unlink(missing_ok=True)
            raise _cannot_write(self._target, error) from error
        return self

    def put(self) -> None:
        """Make it the record that others read. Raises StorageError."""
        try:
            self._path.replace(self._target)
        except OSError as error:
            raise _cannot_write(self._target, error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)

    @staticmethod
    def sweep(lock: Path) -> None:
        """Remove what processes left that were killed while they wrote. Only the lock's holder may call this."""
        target = record_path(lock)
        for left in target.parent.iterdir():
            if left.name.startswith(f"{target.name}.") and left.suffix == ".new":
                left.unlink(missing_ok=True)


def boot_id() -> str:
    """Return what this boot of the machine is known by; empty where the system does not tell."""
    file = _PROC / "sys/kernel/random/boot_id"
    if file.exists():
        return file.read_text(encoding="ascii").strip()
    return _said_by("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")  # macOS


def process_start(pid: int) -> str | None:
    """Return when the process started, in a form only to be compared; None if it is gone or a zombie."""
    if not (_PROC / "self/stat").exists():
        state, _, started = _said_by("/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)).partition(" ")
        return started.strip() or None if state and not state.startswith("Z") else None
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or gone while it was read
        return None
    # The name, in brackets, may hold blanks and brackets; after it come state (field 3) to start time (field 22).
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _said_by(*command: str) -> str:
    environment = {"LC_ALL": "C", "TZ": "UTC"}  # so that two processes get the same words
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {error.strerror}", operation="own")


def _encode(record: OwnerRecord) -> dict[str, Any]:
    who = record.identity
    return {
        "format": FORMAT, "host": who.host, "pid": who.pid, "process_started": who.started, "boot_id": who.boot_id,
        "counter": record.counter, "since": record.since, "released": record.released, "uri": record.uri,
        "token": record.token,
    }


def _decode(found: dict[str, Any]) -> OwnerRecord:
    uri, token = found["uri"], found["token"]
    return OwnerRecord(
        identity=Identity(
            str(found["host"]), int(found["pid"]), str(found["process_started"]), str(found["boot_id"])
        ),
        counter=int(found["counter"]),
        since=str(found["since"]),
        uri=None if uri is None else str(uri),
        token=None if token is None else str(token),
        released=bool(found["released"]),
    )
