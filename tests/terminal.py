"""The command line on a pseudo-terminal, as a person has it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

from tests.program import command, environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class OnTerminal:
    """A call on a terminal of 200 columns; ``text`` is what the terminal has got so far."""

    def __init__(self, folder: Path, *arguments: str | Path, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        self._got: list[bytes] = []
        self.process = subprocess.Popen(
            command(*arguments), cwd=folder, env=environment(TERM="xterm", COLUMNS="200", LINES="50", **more),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            self._got.append(piece)

    @property
    def text(self) -> str:
        return b"".join(self._got).decode(errors="replace").replace("\r\n", "\n")

    @property
    def plain(self) -> str:
        """The text without colours and movements of the cursor."""
        return ESCAPES.sub("", self.text)

    def wait(self, seconds: float = 90) -> int:
        """Wait for the end; return the exit status."""
        try:
            status = self.process.wait(seconds)
        finally:
            self.end()
        return status

    def end(self) -> None:
        """End the call if it is still going on, and let go of the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1
