"""The run's end of the launcher: start it, send it messages, read its events."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

_PROGRAM = Path(__file__).with_name("launcher.py")
_WAIT = 'trap "" HUP INT TERM; read -r word; [ "$word" = done ] || exec "$1" -I -c "$2"'


class LauncherProcess:
    """A living launcher. The descriptors ``keep_open`` stay open in it for its life (the owner's lock)."""

    def __init__(self, keep_open: Sequence[int] = ()) -> None:
        self._socket, theirs = socket.socketpair()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the launcher
        with theirs:
            self._process = subprocess.Popen(
                # utf8: names of files mean the same bytes there as here
                [sys.executable, "-I", "-S", "-X", f"utf8={sys.flags.utf8_mode}", str(_PROGRAM), *map(str, keep_open)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                cwd="/",
                start_new_session=True,  # no Ctrl-C of the terminal for it and the commands
                pass_fds=tuple(keep_open),
            )
        self.pid = self._process.pid
        self._received = b""
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The descriptor that becomes readable when there are events."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; to a launcher that has died it is lost, which :meth:`events` will tell."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            try:
                self._socket.sendall(line)
            except OSError:
                return

    def events(self) -> list[dict[str, Any]] | None:
        """Return the events that have come; None when the launcher is gone. Blocks until there is one or the other."""
        try:
            chunk = self._socket.recv(1 << 18)
        except OSError:
            chunk = b""
        if not chunk:
            return None
        *lines, self._received = (self._received + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def close(self, patience_seconds: float) -> None:
        """Wait for the launcher to end, kill it if it does not, close the run's end of the socket."""
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def complaints(self) -> str:
        """Return what it wrote on standard error (a traceback, if it broke), and close that file."""
        with self._complaints as file:
            file.seek(0)
            return file.read().decode(errors="replace").strip()


class Guard:
    """A process that waits until neither the run nor its launcher is alive, and then ends what they have left.

    Each of the two ends the other's commands, but somebody may kill both, as ``killall -9 python3`` does: so it is a
    shell that waits. Both hold ``writing``, the end of a pipe; what closes it last is the end of both.
    """

    def __init__(self, run_token: str) -> None:
        reading, self.writing = os.pipe()
        program = (
            f"import sys; sys.path.insert(0, {str(_PROGRAM.parents[2])!r}); "
            f"from {__name__} import end_processes_of_run; end_processes_of_run({run_token!r})"
        )
        with open(reading, "rb") as source:  # noqa: PTH123 - a descriptor
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT, "canard-guard", sys.executable, program], stdin=source,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
            )  # fmt: skip

    def dismiss(self) -> None:
        """All is over and nothing is left: let it go, whoever still holds the pipe."""
        with contextlib.suppress(OSError):
            os.write(self.writing, b"done\n")
        os.close(self.writing)
        self._process.wait()


def end_processes_of_run(run_token: str, *, patience_seconds: float = 10.0) -> int:
    """Kill every process that bears a run's token in its environment, and all below; return how many there were.

    For when the launcher that should do it is dead. Slow: it looks at every process of the machine.
    """
    ended: set[int] = set()
    for _ in range(50):  # a process may fork while we look
        left = _bearing(run_token)
        if not left:
            break
        ended.update(process.pid for process in left)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=patience_seconds)
    return len(ended)


def run_enders(
    enders: Sequence[Sequence[str]], variables: Mapping[str, str], *, patience_seconds: float = 30.0
) -> None:
    """Run the programs that end what goes on when the processes of a try are dead, such as its containers."""
    for ender in enders:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ender, env=dict(variables), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, check=False, timeout=patience_seconds,
            )  # fmt: skip


def _bearing(run_token: str) -> list[psutil.Process]:
    found = {}
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("CANARD_RUN") == run_token:
                found[process.pid] = process
                found.update({child.pid: child for child in process.children(recursive=True)})
        except psutil.Error:
            continue
    return list(found.values())
