"""A laboratory for commands: a real database, a real launcher, contexts as handlers get them."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.execution import procfs
from canard_pipe.execution.context import CommandContext, contexts
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget

GIB = 1024**3


class Lab:
    """One launch folder with its database and executor."""

    def __init__(self, root: Path, **options) -> None:
        self.root = root
        self.environ = dict(os.environ)
        budget = Budget(2, 8 * GIB, {"licence": 1}, monotonic=time.monotonic)
        self.executor = LocalExecutor(budget, **({"grace_seconds": 0.5, "linger_seconds": 0.2} | options))
        self.database = self._open()

    def _open(self) -> Database:
        make = contexts(self.executor, self.root / "work", environ=self.environ)
        return Database(self.root / "state.duckdb", root=self.root, claim_type=make)

    def claim(self, id: str = "s1", *, lease_seconds: float = 30.0) -> CommandContext:
        self.database.spawn("sample", {}, id=id, max_failures=10)
        context = self.database.claim(names=["sample"], lease_seconds=lease_seconds)
        assert isinstance(context, CommandContext)
        assert context.id == id
        return context

    def again(self, context: CommandContext) -> CommandContext:
        """The attempt failed; the next one begins."""
        context.fail("failed")
        return self.claim(context.id)

    def after_crash(self, context: CommandContext) -> CommandContext:
        """The run died: what waited for the next transaction is lost; the next attempt begins."""
        self.database.writer._riders.clear()
        context.release()
        return self.claim(context.id)

    def counting(self, text: str = "true") -> list[str]:
        """A command that leaves a line outside its folder each time it runs."""
        return ["bash", "-c", f"echo x >> {shlex.quote(str(self.root / 'executions'))}; {text}"]

    @property
    def executions(self) -> int:
        file = self.root / "executions"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def jobs(self) -> list[tuple[int, str, str | None]]:
        self.database.writer.flush()
        _, rows = self.database.store.sql(
            "SELECT attempt, state, cause FROM canard_absurd.jobs ORDER BY task_seq, step, ordinal, attempt"
        )
        return [(row[0], row[1], row[2]) for row in rows]


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    labs: list[Lab] = []

    def make(root: Path = tmp_path, **options) -> Lab:
        root.mkdir(parents=True, exist_ok=True)
        lab = Lab(root, **options)
        lab.executor.__enter__()
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.executor.close()
        lab.database.close()


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


class Background:
    """A handler's call in a thread of its own, with what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.result: object = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.error = error

    def join(self, seconds: float = 20.0) -> Background:
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return self


@pytest.fixture
def background() -> Callable[[Callable[[], object]], Background]:
    return Background


def alive_with(text: str) -> list[int]:
    """Return the processes whose command line holds ``text``; older ones than these tests are none of theirs."""
    me = procfs.table([os.getpid()])[os.getpid()]
    found = []
    for process in procfs.table().values():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if text.encode() in line and process.start >= me.start and process.pid != me.pid:
            found.append(process.pid)
    return found
