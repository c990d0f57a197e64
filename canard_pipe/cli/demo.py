"""demo: the packaged example on made data, in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH
from canard_pipe.cli.session import DEFAULT_STATE, Folders, Session

FILES = ("pipeline.py", "make_data.py")
PARAMS = {"reference": "reference.fa", "truth": "truth.tsv"}


@click.command(short_help="Run the packaged example on made data.")
@click.argument("folder", type=PATH, metavar="[FOLDER]", default="canard-demo")
@click.pass_obj
def demo(session: Session, folder: str) -> int:
    """Make small data of four samples in FOLDER (canard-demo by default), and run a real pipeline over them there.

    One sample fails in its first try, on purpose, and succeeds in its second. Needs pip packages only:
    pip install pybwa.

    Exit status: as that of run, 0 when all is well; 2 pybwa is not installed.
    """
    from canard_pipe.cli.running import finish, observing
    from canard_pipe.errors import InputError
    from canard_pipe.pipeline.run import run_pipeline
    from canard_pipe.pipeline.stored_run import RunOptions

    if importlib.util.find_spec("pybwa") is None:
        raise InputError("the demo aligns with pybwa, which is not installed: pip install pybwa")
    place = Path.cwd() / folder
    sheet = prepare(place, packaged_demo())
    state = place / DEFAULT_STATE
    session.state = state
    params = tuple(f"{name}={place / file}" for name, file in PARAMS.items())
    program = program_from(place)
    typed = " ".join([f"{program} run pipeline.py", sheet.name, *(f"--param {n}={f}" for n, f in PARAMS.items())])
    output.lines([f"The data are made in {folder}. What runs now, there, is:", "", f"    {typed}", ""])
    options = RunOptions(
        pipeline_file=place / FILES[0],
        sheet_file=sheet,
        params=params,
        launch=place,
        folder=place,
        state=state,
        work=place / "work",
        results=place / "results",
    )
    with observing() as observer:
        report = run_pipeline(options, observer)
    exit_status = finish(report, Folders(place, state), as_json=False)
    output.lines([
        "",
        f"Now look around: cd {shlex.quote(folder)}",
        f"    {program} status",
        f"    {program} why eider        (its first try failed on purpose)",
        f"    {program} sql 'from canard_absurd.steps order by saved_at'",
        "    cat results/cohort/summary.tsv",
        "    " + typed + "        (does nothing: all is done)",
    ])  # fmt: skip
    return exit_status


def prepare(place: Path, packaged: Path) -> Path:
    """Copy the pipeline into ``place``, make the data there and return the sheet. What is there already is kept."""
    place.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if not (place / name).exists():
            shutil.copyfile(packaged / name, place / name)
    make = runpy.run_path(str(place / "make_data.py"))["make"]
    return Path(make(place))


def program_from(folder: Path) -> str:
    """Return what to type in ``folder`` to call this program: its name where PATH has it, else its path."""
    if shutil.which("canard-pipe") is not None:
        return "canard-pipe"
    called = Path(sys.argv[0]).absolute()
    return shlex.quote(os.path.relpath(called, folder) if called.exists() else "canard-pipe")


def packaged_demo() -> Path:
    """Return the folder of the demo: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "pipelines" / "demo", package.parent / "pipelines" / "demo"):
        if (folder / FILES[0]).is_file():
            return folder
    raise FileNotFoundError("the packaged demo is missing; install canard-pipe anew")
