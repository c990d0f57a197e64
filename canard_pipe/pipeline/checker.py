"""Checks in a child process: a file that crashes a parser costs its sample, not the run.

The child is ``python -m canard_pipe.pipeline.checker``. It reads one JSON object a line (``check``: output or input,
``path``) and answers each with one line (``problems``, ``notes``). It ends when its input ends or its parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from canard_pipe.pipeline.checks import Findings, check_input, check_output, needs_reading, quick_problems

KeepAlive = Callable[[], None]
_TICK_SECONDS = 1.0


_TRIES_AFTER_KILLS = 3
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


def _nothing() -> None:
    return


class Checker:
    """Checks files in at most ``children`` child processes, started when first needed; used by many threads.

    Close it, or use it in a ``with`` statement: that ends the children.
    """

    def __init__(self, children: int = 2) -> None:
        self._free = threading.Semaphore(children)
        self._mutex = threading.Lock()
        self._idle: list[_Child] = []
        self._closed = False

    def output(self, path: Path, keep_alive: KeepAlive = _nothing) -> list[str]:
        """Return what is wrong with a result. No child is needed for a file that is not parsed.

        ``keep_alive`` is called about once a second and may raise; then the child is ended.
        """
        problems = quick_problems(path)
        if problems or not needs_reading(path):
            return problems
        return list(self._ask("output", path, keep_alive).problems)

    def input(self, path: Path, keep_alive: KeepAlive = _nothing) -> Findings:
        """Return what is wrong with an input file, and what is to be noted; ``keep_alive`` as above."""
        return self._ask("input", path, keep_alive)

    def close(self) -> None:
        """End the children; a second call does nothing."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, check: str, path: Path, keep_alive: KeepAlive) -> Findings:
        for _ in range(_TRIES_AFTER_KILLS):
            try:
                return self._ask_once(check, path, keep_alive)
            except _ChildKilled as killed:  # by somebody else, or for lack of memory: that says nothing of the file
                ending = killed
        return Findings((f"{path} could not be checked: the program for that was killed again and again ({ending})",))

    def _ask_once(self, check: str, path: Path, keep_alive: KeepAlive) -> Findings:
        with self._child() as child:
            try:
                answer = child.ask({"check": check, "path": str(path.absolute())}, keep_alive)
            except _ChildDied as died:
                return Findings((f"{path} crashed the program that checked it ({died}); it is probably damaged",))
        return Findings(tuple(answer["problems"]), tuple(answer["notes"]))

    @contextlib.contextmanager
    def _child(self) -> Iterator[_Child]:
        with self._free:
            with self._mutex:
                child = self._idle.pop() if self._idle else None
            if child is not None and child.is_gone():
                child.end()
                child = None
            child = child or _Child()
            try:
                yield child
            finally:
                with self._mutex:
                    keep = child.is_ready() and not self._closed
                    if keep:
                        self._idle.append(child)
                if not keep:
                    child.end()


class _ChildDied(Exception):
    """The child ended instead of answering; the text says how."""


class _ChildKilled(Exception):
    """The child was killed from outside before it answered; the text says how."""


class _Child:
    """One child process and the talk with it. Belongs to one thread at a time."""

    def __init__(self) -> None:
        package_root = str(Path(__file__).parents[2])
        paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._busy = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "canard_pipe.pipeline.checker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # htslib's warnings; the errors come as exceptions
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def is_ready(self) -> bool:
        return not self._busy and not self.is_gone()

    def ask(self, question: dict[str, str], keep_alive: KeepAlive) -> dict[str, list[str]]:
        """Send one question and wait for its answer. Raises _ChildDied, and what ``keep_alive`` raises."""
        self._busy = True
        inlet, outlet = self._process.stdin, self._process.stdout
        if inlet is None or outlet is None:
            raise _ChildDied("it has no pipes")
        try:
            inlet.write(json.dumps(question).encode() + b"\n")
            inlet.flush()
        except OSError as error:
            raise _ChildDied(self._ending()) from error
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(outlet, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(_TICK_SECONDS):
                    keep_alive()
                    continue
                part = os.read(outlet.fileno(), 65536)
                if not part:
                    raise _ChildDied(self._ending())
                line += part
        self._busy = False
        answer: dict[str, list[str]] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process if it lives, and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent goes nowhere
                    pipe.close()

    def _ending(self) -> str:
        self._process.kill()  # its output is closed: it can only be ending
        code = self._process.wait()
        if -code in _FROM_OUTSIDE:
            raise _ChildKilled(f"signal {signal.Signals(-code).name}")
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def main() -> None:
    """Answer questions from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the run ends its children
    parent = os.getppid()

    def keep_going() -> None:
        if os.getppid() != parent:
            os._exit(1)

    for line in sys.stdin.buffer:
        question = json.loads(line)
        path = Path(question["path"])
        if question["check"] == "output":
            found = Findings(tuple(check_output(path, keep_going)))
        else:
            found = check_input(path, keep_going)
        answer = {"problems": found.problems, "notes": found.notes}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
