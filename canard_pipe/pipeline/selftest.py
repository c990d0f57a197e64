"""The self-test: a small pipeline, run as a user runs one, to results that are known beforehand."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.execution.health import Finding, fail, ok
from canard_pipe.execution.health.filesystems import existing

SAMPLES = {"A": ["duck", "canard", "teal"], "B": ["eider"]}
WITHIN_SECONDS = 120.0
GRACE_SECONDS = 75.0  # a run asks Slurm for a minute whether its jobs are gone
LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """``program``: the words that start canard-pipe. ``arguments``: options of ``run`` (profile, executor).
    ``folders`` are the absolute state, work and results that a run here would have."""

    program: Sequence[str]
    pipeline_file: Path
    settings_file: Path
    launch: Path
    folders: Mapping[str, Path]
    arguments: Sequence[str] = ()
    seconds: float = WITHIN_SECONDS


def self_test(plan: Plan, environ: Mapping[str, str]) -> Finding:
    """Run it in a new folder below the launch folder and check what it has made; all is removed if it is right.

    A folder of state, work or results on another file system gets a new folder there for its part.
    """
    places: list[Path] = []
    try:
        home = _new(plan.launch, places)
        folders = {}
        for name, folder in plan.folders.items():
            there = existing(folder)
            apart = there.stat().st_dev != home.stat().st_dev
            folders[name] = (_new(there, places) if apart else home) / name
        arguments = [*_lay_out(plan, home), *(f"--{name}={folder}" for name, folder in folders.items())]
        begun = time.monotonic()
        status, said, errors = _run(plan, [*plan.program, *arguments], home, environ)
        seconds = time.monotonic() - begun
        wrong = _wrong(status, said, folders["results"])
    except OSError as error:
        _remove(places)
        return fail("self-test", f"it cannot be laid out: {error}", "make the launch folder writable")
    except BaseException:  # interrupted
        _remove(places)
        raise
    if wrong is None:
        _remove(places)
        return ok("self-test", f"{len(SAMPLES)} samples, a once and a cohort function have run in {seconds:.1f} s; "
                               "their results are as expected")  # fmt: skip
    if status is None:
        wrong = f"it has not ended within {plan.seconds:g} s"
    last = " / ".join(line.strip() for line in errors.splitlines()[-LAST_LINES:] if line.strip())
    return fail("self-test", f"{wrong}{': ' + last if last else ''}", f"look around in {home}, which was kept")


def _lay_out(plan: Plan, home: Path) -> list[str]:
    """Write pipeline, sheet, files and settings; return what follows the program."""
    shutil.copyfile(plan.pipeline_file, home / "pipeline.py")
    if plan.settings_file.exists():
        shutil.copyfile(plan.settings_file, home / plan.settings_file.name)
    for sample, words in SAMPLES.items():
        (home / f"{sample}.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    sheet = ["sample,words", *(f"{sample},{sample}.txt" for sample in SAMPLES)]
    (home / "samples.csv").write_text("\n".join(sheet) + "\n", encoding="utf-8")
    return ["run", "pipeline.py", "samples.csv", "--json", *plan.arguments]


def _run(
    plan: Plan, words: Sequence[str], home: Path, environ: Mapping[str, str]
) -> tuple[int | None, str, str]:
    """Return exit status (None: it did not end in time), standard output and standard error."""
    environment = {**environ, "CANARD_PIPE_EVENTS": str(home / "events.jsonl")}
    with (home / "stdout.log").open("wb") as out, (home / "stderr.log").open("wb") as errors:
        child = subprocess.Popen(
            words, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = child.wait(plan.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(child)
    texts = [(home / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout.log", "stderr.log")]
    return status, texts[0], texts[1]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the run as Ctrl-C does, twice (the second cancels its jobs), then for certain."""
    for number, seconds in ((signal.SIGINT, 2.0), (signal.SIGINT, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        if child.poll() is not None:
            return
        os.kill(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)


def _wrong(status: int | None, said: str, results: Path) -> str | None:
    """Return what is not as expected, None if all is."""
    if status != 0:
        return f"it ended with exit status {status}"
    try:
        rows = {row["sample"] or row["function"]: row["state"] for row in json.loads(said)}
    except (ValueError, KeyError, TypeError):
        return "run --json has not printed its rows"
    if rows != dict.fromkeys([*SAMPLES, "header", "together"], "done"):
        return f"not everything is done: {rows}"
    expected = {"cohort/names.txt": f"{len(SAMPLES)}\n"}
    for sample, words in SAMPLES.items():
        lines = ["words", *sorted(words, reverse=True), str(len(words))]
        expected[f"{sample}/words.txt"] = "".join(f"{line}\n" for line in lines)
    found = {str(file.relative_to(results)): file.read_text() for file in results.rglob("*") if file.is_file()}
    return None if found == expected else f"the results are not as expected: {found}"


def _new(folder: Path, places: list[Path]) -> Path:
    place = Path(tempfile.mkdtemp(prefix="canard-doctor-", dir=folder))
    places.append(place)
    return place


def _remove(places: Sequence[Path]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
