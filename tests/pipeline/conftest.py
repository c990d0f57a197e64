from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.pipeline import run
from canard_pipe.pipeline.access import open_view
from canard_pipe.pipeline.observer import Silent
from canard_pipe.pipeline.overrides import parse_override
from canard_pipe.pipeline.run import RunReport
from canard_pipe.pipeline.stored_run import RunOptions
from canard_pipe.report import why

HEADER = """
from pathlib import Path
from canard_pipe import InputFile, Pipeline, SampleRow, SampleSkipped

HERE = Path(__file__).parent


def count(what):
    with (HERE / "counter.txt").open("a") as file:
        file.write(f"{what}\\n")
"""


class Recorder(Silent):
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.plans: list[list[str]] = []
        self.ends: list[tuple[str, str, str, str]] = []
        self.steps: list[tuple[str, str, str]] = []
        self.notes: list[str] = []

    def planned(self, lines: Sequence[str]) -> None:
        self.plans.append(list(lines))

    def step(self, kind: str, sample: str, step: str) -> None:
        self.steps.append((kind, sample, step))

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        self.ends.append((kind, sample, state, detail))

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Project:
    """A launch folder with a pipeline file and a sheet."""

    folder: Path
    observer: Recorder = field(default_factory=Recorder)
    suspend_always: bool = False

    @property
    def pipeline(self) -> Path:
        return self.folder / "pipeline.py"

    @property
    def sheet(self) -> Path:
        return self.folder / "samples.csv"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def write(self, pipeline: str, sheet: str) -> None:
        self.pipeline.write_text(HEADER + textwrap.dedent(pipeline))
        self.write_sheet(sheet)

    def write_sheet(self, sheet: str) -> None:
        self.sheet.write_text(textwrap.dedent(sheet).lstrip())

    def counted(self) -> list[str]:
        """What the pipeline's functions counted outside the folders of tries, in the order of execution."""
        file = self.folder / "counter.txt"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    def run(self, **options: Any) -> RunReport:
        self.observer = Recorder()
        return run.run_pipeline(
            RunOptions(
                pipeline_file=self.pipeline,
                sheet_file=self.sheet,
                params=options.pop("params", ()),
                launch=self.folder,
                folder=self.folder,
                state=self.folder / ".canard",
                work=self.folder / "work",
                results=self.results,
                **{"cpus": 2, "suspend_always": self.suspend_always, **options},
            ),
            self.observer,
        )

    def retry(
        self,
        *keys: str,
        failed: bool = False,
        from_step: str | None = None,
        item: str | None = None,
        memory: str | None = None,
        time: str | None = None,
    ) -> RunReport:
        self.observer = Recorder()
        asked = run.Retry(keys, failed, from_step, parse_override(memory, time), item)
        return run.retry_stored(self.folder / ".canard", self.folder, asked, self.observer)

    def why(self, key: str) -> str:
        """What `canard-pipe why` prints of a sample."""
        with open_view(self.folder / ".canard", self.folder) as view:
            return "\n".join(why.why_lines(why.explain(view, key), now_us=0))

    def states(self, report: RunReport) -> dict[str, str]:
        return {row["sample"]: row["state"] for row in report.samples}


# For tests that count how often code of a pipeline runs: that before a command runs again when its task wakes.
waiting_only = pytest.mark.parametrize("project", [False], ids=["waiting"], indirect=True)


@pytest.fixture(params=[False, True], ids=["waiting", "suspending"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """Each test is run twice: with handlers that wait for their commands, and with tasks that sleep meanwhile."""
    return Project(tmp_path, suspend_always=request.param)


@pytest.fixture
def write_gzip() -> Callable[[Path, str], None]:
    import gzip

    def write(path: Path, text: str) -> None:
        path.write_bytes(gzip.compress(text.encode(), mtime=0))

    return write
