"""A small project for the tests of publishing: a real database, a work folder, results, and a publisher."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.pipeline.publishing import Publisher

ROOT = Path(__file__).resolve().parents[2]


def accept_all(_path: Path, _keep_alive: Callable[[], None]) -> Sequence[str]:
    return []


@dataclass
class Project:
    """``folder`` is the launch folder; ``publisher`` checks nothing, so that a test is about publishing only."""

    folder: Path
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.publisher = Publisher(self.folder / "results", self.folder / ".canard", accept_all)

    @property
    def results(self) -> Path:
        return self.publisher.results

    def with_(self, **changes) -> Project:
        """Change the publisher."""
        self.publisher = replace(self.publisher, **changes)
        return self

    def open(self, **options) -> Database:
        (self.folder / ".canard").mkdir(exist_ok=True)
        return Database(self.folder / ".canard" / "state.duckdb", root=self.folder, **options)

    def made(self, name: str, content: str | bytes = "made\n", *, attempt: int = 1) -> Path:
        """Write a file in the folder of a try."""
        path = self.folder / "work" / f"attempt-{attempt}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def made_folder(self, name: str, **files: str) -> Path:
        """Write a folder of files in the folder of a try."""
        for inner, content in files.items():
            self.made(f"{name}/{inner}", content)
        return self.folder / "work" / "attempt-1" / name

    def publish(self, claim: Claim, files: dict[str, Path], subfolder: str = "S", step: str = "publish", **options):
        """Publish as the pipeline does it: inside a durable step."""
        def act() -> dict[str, Path]:
            return self.publisher.publish(claim, files, subfolder, **options)

        places = claim.step(step, act)
        if isinstance(claim.database, Database):
            claim.database.writer.flush()  # that they are published waits for the next transaction
        return places

    def rows(self, database: Database) -> list[tuple[str, str]]:
        """Return target and state of every row of outputs, those that wait for the next transaction included."""
        database.writer.flush()
        return sorted(database.store.sql("SELECT target, state FROM canard_absurd.outputs")[1])

    def result_files(self) -> dict[str, str]:
        """Return everything that lies in the results, staging included, with its text."""
        return {
            path.relative_to(self.results).as_posix(): path.read_text()
            for path in sorted(self.results.rglob("*"))
            if path.is_file()
        }

    def staging_files(self) -> list[str]:
        folders = (self.folder / ".canard" / "staging", self.results / ".canard-staging")
        return [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]


def task(database: Database, sample: str = "S", generation: int = 1, **options) -> Claim:
    """Spawn and claim a sample's task. Earlier ones must not be claimable any more."""
    task_id = database.spawn("sample", None, id=f"germline/sample/{sample}/{generation}")
    claim = database.claim(**options)
    assert claim is not None
    assert claim.id == task_id
    return claim


def dies(folder: Path, script: str, *arguments: str) -> None:
    """Run a script that must kill itself with SIGKILL; ``project`` and ``die_at(point)`` are defined in it."""
    head = f"""
        import os, signal, sys
        from pathlib import Path
        from canard_pipe.pipeline import placing, publishing
        from tests.pipeline.publishing_kit import Project, task
        project = Project(Path({str(folder)!r}))
        def die_at(point):
            def at(reached):
                if reached == point:
                    os.kill(os.getpid(), signal.SIGKILL)
            return at
    """
    text = textwrap.dedent(head) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
