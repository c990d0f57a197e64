"""doctor: is this machine, or this site, ready?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canard_pipe.cli import output
from canard_pipe.cli.options import profile_option, state_option
from canard_pipe.cli.session import Folders, Session, absolute

if TYPE_CHECKING:
    from canard_pipe.execution.health import Finding
    from canard_pipe.pipeline.settings.resolve import Settings


@click.command(short_help="Tell whether this machine is ready; runs a small self-test.")
@click.argument("pipeline", metavar="[PIPELINE]", required=False)
@click.option("--executor", type=click.Choice(["local", "slurm"]), help="Where the self-test's commands run.")
@profile_option
@state_option
@click.option("--work", metavar="DIR", help="Where commands run; work by default.")
@click.option("--results", metavar="DIR", help="Where results are published; results by default.")
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
    without_test: bool,
    as_json: bool,
) -> int:
    """Look at versions, folders, locks, space, clock and limits as a run here would find them, at the tools of
    PIPELINE, and run a small self-test. Each line is ok, warn or fail, with the way out.

    Works beside a going run. What is made on the way is removed, but for a self-test that fails: its folder is named.

    Exit status: 0 nothing failed, whatever the warnings; 1 something failed; 2 the call, a settings file or the
    pipeline file is wrong; 130 interrupted.
    """
    from canard_pipe.execution.health import FAIL

    settings = session.settings({"executor": executor, "state": state, "work": work, "results": results}, profile)
    folders = session.place(settings["state"], named=state is not None)
    tools = _tools(pipeline)
    found: list[Finding] = []
    for finding in _findings(settings, folders, tools, test=not without_test):
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        output.as_json_list(finding.as_json() for finding in found)
    else:
        from canard_pipe.report.health import verdict_line

        output.lines(["", verdict_line(found)])
    return 1 if any(finding.level == FAIL for finding in found) else 0


def _findings(settings: Settings, folders: Folders, tools: list[str], *, test: bool) -> Iterator[Finding]:
    from canard_pipe.execution.health import filesystems, machine, programs
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
    if test:
        yield _self_test(settings, folders, places, environ)


def _self_test(settings: Settings, folders: Folders, places: dict[str, Path], environ: dict[str, str]) -> Finding:
    from canard_pipe.pipeline.selftest import Plan, self_test
    from canard_pipe.pipeline.settings.resolve import PROJECT_FILE

    arguments = [f"--executor={settings['executor']}"]
    arguments += [f"--profile={settings.profile}"] if settings.profile else []
    return self_test(
        Plan(
            program=[sys.executable, "-m", "canard_pipe.cli.main"],
            pipeline_file=_packaged(),
            settings_file=Path.cwd() / PROJECT_FILE,
            launch=folders.launch,
            folders=places,
            arguments=arguments,
        ),
        environ,
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
