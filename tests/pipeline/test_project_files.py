"""What a run does to the files of a project: which it makes, how many, and which it never touches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = 20

PURE = """
class Row(SampleRow):
    sample: str

pipeline = Pipeline("pure", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    for name in ("a", "b", "c"):
        ctx.step(name, lambda: 1)
"""
COMMANDS = PURE.replace("lambda: 1", 'lambda: ctx.process(["true"])')


@pytest.mark.parametrize(("pipeline", "most"), [(PURE, 0), (COMMANDS, 10)])
def test_the_number_of_files_per_step_is_bounded(project, pipeline, most):
    """BUGS 71: no file for a step of Python, at most ten for a try of a command, folders included."""
    project.write(pipeline, "sample\n" + "".join(f"s{n}\n" for n in range(SAMPLES)))
    assert project.run().exit_status == 0
    made = list((project.folder / "work").rglob("*"))
    assert len(made) <= most * SAMPLES * 3
    assert len(list((project.folder / ".canard").iterdir())) <= 10


WATCH = """
import os, sys
written = []

def hook(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            written.append(str(path))
    elif event in ("os.rename", "os.remove", "os.truncate", "shutil.move"):
        written.extend(str(each) for each in arguments)

sys.addaudithook(hook)
from canard_pipe.cli.main import main
try:
    main()
except SystemExit:
    pass
print("WRITTEN", *written, sep="\\n", file=sys.stderr)
"""

READER = """
class Row(SampleRow):
    sample: str
    fastq_1: InputFile

pipeline = Pipeline("reader", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    out = ctx.step("copy", lambda: ctx.process(["cp", sample.row.fastq_1, "out.fastq"]) / "out.fastq")
    ctx.publish({"out.fastq": out})
"""


def test_files_of_the_user_are_never_opened_for_writing(project):
    """BUGS 74: the sheet, the pipeline file and the input files are read only, also on the second run."""
    project.write(READER, "sample,fastq_1\nA,reads.fastq\n")
    reads = project.folder / "reads.fastq"
    reads.write_text("@r\nACGT\n+\nIIII\n")
    theirs = {project.pipeline, project.sheet, reads}
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in theirs}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", WATCH, "run", project.pipeline.name, project.sheet.name],
            cwd=project.folder, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        written = {project.folder / line for line in done.stderr.partition("WRITTEN\n")[2].splitlines()}
        assert any(path.name == "status.json" or ".canard" in path.parts for path in written)  # the hook hears
        assert not written & theirs
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in theirs} == before
    assert (project.results / "A" / "out.fastq").read_text() == reads.read_text()


ODD = """
class Odd(Exception):
    def __init__(self, needed):
        super().__init__(needed)

class Row(SampleRow):
    sample: str

pipeline = Pipeline("odd", rows=Row, key="sample")

@pipeline.sample(max_failures=1)
def one(sample, ctx):
    def fails():
        if (HERE / "mended").exists():
            return "well"
        raise Odd({"A": "\\N{DUCK} quack", "B": b"\\xff\\x00", "C": "\\ud800 alone"}[sample.key])
    return ctx.step("fails", fails)
"""


def test_an_exception_of_the_pipelines_own_is_kept_as_text(project):
    """BUGS 44: nothing stored needs the exception's class to be read again, whatever its message holds."""
    project.write(ODD, "sample\nA\nB\nC\n")
    report = project.run()
    errors = {row["sample"]: row["error"] for row in report.samples}
    assert "\N{DUCK} quack" in errors["A"]
    assert "xff" in errors["B"]
    assert "alone" in errors["C"]
    project.write(ODD.replace("Odd", "Renamed"), "sample\nA\nB\nC\n")
    (project.folder / "mended").touch()
    assert project.run().exit_status == 1  # they can be read, and wait for retry
    assert project.retry(failed=True).exit_status == 0


def test_the_folder_of_a_project_may_have_any_name(tmp_path):
    """BUGS 67: blanks, an apostrophe, brackets and letters beyond ASCII."""
    from tests.pipeline.conftest import Project

    folder = Path(tmp_path) / "My Lab's data (2024) ü $HOME"
    folder.mkdir()
    project = Project(folder)
    project.write(READER, "sample,fastq_1\nA,reads.fastq\n")
    (folder / "reads.fastq").write_text("@r\nACGT\n+\nIIII\n")
    assert project.run().exit_status == 0
    assert (project.results / "A" / "out.fastq").exists()
