"""doctor: is this machine, or this site, ready?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH
from canard_pipe.cli.options import profile_option, state_option
from canard_pipe.cli.session import Folders, Session, absolute

if TYPE_CHECKING:
    from canard_pipe.execution.health import Finding
    from canard_pipe.pipeline.settings.resolve import Settings

JOBS_IN_A_ROW, ASK_EVERY = 5, "2s"  # of the self-test on Slurm


@click.command(short_help="Tell whether this machine is ready; runs a small self-test.")
@click.argument("pipeline", type=PATH, metavar="[PIPELINE]", required=False)
@click.option("--executor", type=click.Choice(["local", "slurm"]), help="Where the self-test's commands run.")
@profile_option
@state_option
@click.option("--work", type=PATH, metavar="DIR", help="Where commands run; work by default.")
@click.option("--results", type=PATH, metavar="DIR", help="Where results are published; results by default.")
@click.option("--slurm", is_flag=True, help="Check the Slurm site too, with a tiny job.")
@click.option("--wait", metavar="TIME", default="2m", show_default=True, help="How long for that job to start.")
@click.option("--no-self-test", "without_test", is_flag=True, help="Look only; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per finding.")
@click.pass_obj
def doctor(
    session: Session,
    pipeline: str | None,
    executor: str | None,
    profile: str | None,
    state: str | None,
    work: str | None,
    results: str | None,
    slurm: bool,
    wait: str,
    without_test: bool,
    as_json: bool,
) -> int:
    """Look at versions, folders, locks, space, clock and limits as a run here would find them, at the tools of
    PIPELINE, and run a small self-test. Each line is ok, warn or fail, with the way out.

    With --slurm also at the site: programs and how fast they answer, accounting, limits, partition and account of the
    settings, and, by a tiny job, whether jobs are found by name, whether nodes see the project, and their clocks.

    Works beside a going run. What is made on the way is removed, but for a self-test that fails: its folder is named.

    Exit status: 0 nothing failed, whatever the warnings; 1 something failed; 2 the call, a settings file or the
    pipeline file is wrong; 130 interrupted.
    """
    from canard_pipe.execution.health import FAIL
    from canard_pipe.execution.resources import parse_seconds

    patience = parse_seconds(wait)
    settings = session.settings({"executor": executor, "state": state, "work": work, "results": results}, profile)
    folders = session.place(settings["state"], named=state is not None)
    tools = _tools(pipeline)
    found: list[Finding] = []
    for finding in _findings(settings, folders, tools, slurm=slurm, wait=patience, test=not without_test):
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        output.as_json_list(finding.as_json() for finding in found)
    else:
        from canard_pipe.report.health import verdict_line

        output.lines(["", verdict_line(found)])
    return 1 if any(finding.level == FAIL for finding in found) else 0


def _findings(
    settings: Settings, folders: Folders, tools: list[str], *, slurm: bool, wait: float, test: bool
) -> Iterator[Finding]:
    from canard_pipe.execution.health import FAIL, filesystems, machine, programs
    from canard_pipe.pipeline import health

    environ = dict(os.environ)  # as it is before DuckDB's extension takes the proxies out
    yield machine.check_platform()
    yield from health.check_versions(folders.launch)
    yield health.check_stored(folders.state, folders.launch)
    places = {"state": folders.state, "work": absolute(settings["work"]), "results": absolute(settings["results"])}
    yield from filesystems.check_state(places["state"], filesystems.kind_of(places["state"]))
    for name in ("work", "results"):
        yield from filesystems.check_folder(name, places[name], filesystems.kind_of(places[name]))
    yield filesystems.check_publishing(places["work"], places["results"])
    yield from filesystems.check_space(places)
    yield machine.check_clock()
    yield filesystems.check_server_clock(places["work"])
    yield from machine.check_limits()
    yield from machine.check_resources(settings["cpus"], settings["memory"])
    yield from programs.check_tools(tools, environ)
    bad = False
    for finding in _of_slurm(settings, folders, places["work"], environ, wait=wait if slurm else None):
        bad = bad or finding.level == FAIL
        yield finding
    if test and not (bad and settings["executor"] == "slurm"):  # its jobs would only wait
        yield _self_test(settings, folders, places, environ, wait)


def _of_slurm(
    settings: Settings, folders: Folders, work: Path, environ: dict[str, str], *, wait: float | None
) -> Iterator[Finding]:
    """Ask Slurm where it is there; ``wait``: how long a tiny job may take to start, None for none."""
    import getpass

    from canard_pipe.execution.health import FAIL
    from canard_pipe.execution.slurm import site, trial
    from canard_pipe.execution.slurm.client import SlurmClient
    from canard_pipe.execution.slurm.settings import from_table

    found = from_table(settings.table("slurm"))
    client = SlurmClient(environ, cluster=found.site.cluster)
    wanted = wait is not None or settings["executor"] == "slurm"
    yield from site.check_programs(client, environ, wanted=wanted)
    if client.missing():
        return
    dead = False
    for finding in site.check_answers(client, wanted=wanted):
        dead = dead or finding.level == FAIL
        yield finding
    if not wanted or dead:
        return
    user = getpass.getuser()
    yield from site.check_limits(client, found, user)
    yield from site.check_partition(client, found, user)
    if wait is not None:
        yield from trial.try_job(client, found, work, folders.launch, seconds=wait)


def _self_test(
    settings: Settings, folders: Folders, places: dict[str, Path], environ: dict[str, str], wait: float
) -> Finding:
    from canard_pipe.pipeline.selftest import WITHIN_SECONDS, Plan, self_test
    from canard_pipe.pipeline.settings.resolve import PROJECT_FILE

    arguments = [f"--executor={settings['executor']}", "--cancel-jobs"]
    arguments += [f"--profile={settings.profile}"] if settings.profile else []
    on_slurm = settings["executor"] == "slurm"
    return self_test(
        Plan(
            program=[sys.executable, "-m", "canard_pipe.cli.main"],
            pipeline_file=_packaged(),
            settings_file=Path.cwd() / PROJECT_FILE,
            launch=folders.launch,
            folders=places,
            arguments=arguments,
            seconds=WITHIN_SECONDS + (JOBS_IN_A_ROW * wait if on_slurm else 0.0),
        ),
        environ | ({"CANARD_PIPE_SLURM_INTERVAL": ASK_EVERY} if on_slurm else {}),
    )


def _tools(pipeline: str | None) -> list[str]:
    if pipeline is None:
        return []
    from canard_pipe.pipeline.loading import load_pipeline

    return list(load_pipeline(absolute(pipeline)).pipeline.tools)


def _packaged() -> Path:
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "pipelines", package.parent / "pipelines"):
        if (folder / "selftest" / "pipeline.py").is_file():
            return folder / "selftest" / "pipeline.py"
    raise FileNotFoundError("the packaged self-test is missing; install canard-pipe anew")


def _print(finding: Finding) -> None:
    from canard_pipe.report.health import STYLES, finding_line

    text = finding_line(finding)
    if output.is_terminal():
        from rich.text import Text

        styled = Text(text)
        styled.stylize(STYLES[finding.level], 0, 4)
        output.render(styled)
    else:
        output.line(text)
        output.flush()
