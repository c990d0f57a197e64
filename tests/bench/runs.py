"""Whole runs from outside: planning, the same line again, memory of the head, start-up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.bench.figures import Figure

PIPELINE = '''
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("bench", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    for name in "abc":
        ctx.step(name, lambda: sample.key)
'''


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process took: wall time, and the most memory that it held."""

    seconds: float
    peak_mb: float


def call(folder: Path, *arguments: str, statuses: tuple[int, ...] = (0,)) -> Ended:
    """Run the command line in ``folder``, its output thrown away."""
    with Path(os.devnull).open("r+b") as null:
        began = perf_counter()
        pid = os.posix_spawn(
            sys.executable, [sys.executable, "-c", f"import os; os.chdir({str(folder)!r})\n"
                             "from canard_pipe.cli.main import main; main()", *arguments], os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, null.fileno(), fd) for fd in (0, 1, 2)],
        )
        _, status, usage = os.wait4(pid, 0)
    taken = perf_counter() - began
    assert os.waitstatus_to_exitcode(status) in statuses, (arguments, status)
    return Ended(taken, usage.ru_maxrss / 1024)


def project(folder: Path, samples: int) -> Path:
    """Make a pipeline and a sheet of so many samples."""
    folder.mkdir()
    (folder / "bench.py").write_text(PIPELINE)
    (folder / "samples.csv").write_text("\n".join(["sample", *(f"s{number}" for number in range(samples))]) + "\n")
    return folder


RUN = ("run", "bench.py", "samples.csv", "--cpus", "2")


def planning(folder: Path, samples: int = 10_000) -> Iterator[Figure]:
    """A dry run of a new sheet; the whole run; the same line again, with nothing to do."""
    own = project(folder / "planning", samples)
    dry = call(own, *RUN, "--dry-run")
    yield Figure(f"plan {samples:,} samples x 3 steps", dry.seconds, "s", 3.0)
    yield Figure("  its memory", dry.peak_mb, "MB", 200)
    whole = call(own, *RUN)
    yield Figure("  the run, with steps that do nothing", whole.seconds / samples * 1000, "ms each")
    again = call(own, *RUN)
    yield Figure(f"the same line again, {samples:,} done", again.seconds, "s", 2.0)
    yield Figure("  its memory", again.peak_mb, "MB", 200)
    yield Figure("status of it", min(call(own, "status").seconds for _ in range(3)), "s", 0.5)


def memory(folder: Path, few: int = 200, many: int = 5000) -> Iterator[Figure]:
    """The head's memory for few samples and for many."""
    small, large = (call(project(folder / f"memory-{count}", count), *RUN).peak_mb for count in (few, many))
    yield Figure(f"memory of a run, {many:,} samples more than {few:,}", large - small, "MB", 100, f"{large:.0f} MB")


def starting(folder: Path, rounds: int = 5) -> Iterator[Figure]:
    """What people wait for before anything happens."""
    own = project(folder / "starting", 2)
    call(own, *RUN)
    for arguments, goal in ((("--version",), 0.15), (("status",), 0.5)):
        taken = min(call(own, *arguments).seconds for _ in range(rounds))
        yield Figure(f"canard-pipe {' '.join(arguments)}", taken, "s", goal)
