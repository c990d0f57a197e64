"""run and check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH, samples
from canard_pipe.cli.options import (
    events_option,
    json_option,
    limit_option,
    limits_from,
    param_option,
    pipeline_and_sheet,
    profile_option,
    sheet_from,
    sheet_options,
    state_option,
)
from canard_pipe.cli.session import Folders, Session, absolute

STANDARD_INPUT = "-"

if TYPE_CHECKING:
    from canard_pipe.pipeline.observer import Observer
    from canard_pipe.pipeline.run import RunReport


@click.command(short_help="Run a pipeline over a sheet; the same line again resumes.")
@pipeline_and_sheet
@param_option
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), help="How many cpus commands may use at once.")
@click.option("--memory", metavar="SIZE", help="How much memory commands may ask for at once, such as 8G.")
@limit_option
@click.option("--slots", type=click.IntRange(1, 10_000), help="How many samples may be in work at once.")
@sheet_options
@state_option
@click.option("--work", type=PATH, metavar="DIR", help="Where commands run; work by default.")
@click.option("--results", type=PATH, metavar="DIR", help="Where results are published; results by default.")
@click.option("--executor", type=click.Choice(["local", "slurm"]), help="Where commands run; local by default.")
@click.option("--max-jobs", type=click.IntRange(1), help="How many jobs may be in Slurm at once; 1000 by default.")
@click.option("--cancel-jobs", is_flag=True, help="Let a second Ctrl-C cancel the jobs that are in Slurm.")
@profile_option
@click.option(
    "--suspend-always", is_flag=True, hidden=True,
    help="Let a task sleep while a command of it runs, as under a scheduler. For testing pipelines.",
)
@click.option(
    "--only", metavar="SAMPLE", multiple=True, shell_complete=samples,
    help="Run only this sample, or those like 'S1*'; may be repeated."
)
@events_option
@click.option(
    "--drop-intermediates", is_flag=True, default=None, help="Remove what a sample's commands made once it is done."
)
@click.option("--dry-run", is_flag=True, help="Say what would run; run nothing.")
@click.option("--rerun-changed", is_flag=True, help="Make samples anew whose input changed after they were done.")
@click.option("--accept-changed", is_flag=True, help="Keep the results of such samples and say no more about it.")
@json_option
@click.pass_obj
def run(
    session: Session,
    /,
    pipeline: str,
    sheet: str,
    params: tuple[str, ...],
    cpus: float | None,
    memory: str | None,
    limits: tuple[str, ...],
    slots: int | None,
    state: str | None,
    work: str | None,
    results: str | None,
    executor: str | None,
    max_jobs: int | None,
    cancel_jobs: bool,
    profile: str | None,
    suspend_always: bool,
    only: tuple[str, ...],
    events: str | None,
    drop_intermediates: bool | None,
    dry_run: bool,
    rerun_changed: bool,
    accept_changed: bool,
    as_json: bool,
    **sheet_given: Any,
) -> int:
    """Run PIPELINE (a Python file) over every sample of SHEET (a table). The same line again goes on where it stopped.

    Exit status: 0 every sample, once and cohort function is done or skipped; 1 some are not; 2 the call, the
    pipeline file or the sheet is wrong, and nothing ran; 3 it could not run; 130 interrupted. With --only too it
    is about the whole sheet: samples that wait make it 1.
    """
    from canard_pipe.execution.resources import parse_memory
    from canard_pipe.pipeline.run import run_pipeline
    from canard_pipe.pipeline.stored_run import RunOptions

    if rerun_changed and accept_changed:
        raise click.UsageError("--rerun-changed and --accept-changed exclude each other.")
    here = Path.cwd()
    settings = session.settings(
        {
            "cpus": cpus,
            "memory": None if memory is None else parse_memory(memory),
            "slots": slots,
            "state": state,
            "work": work,
            "results": results,
            "executor": executor,
            "events": events,
            "drop_intermediates": drop_intermediates,
            "slurm.max_jobs": max_jobs,
            "slurm.cancel_jobs": cancel_jobs or None,
        },
        profile,
    )
    folders = session.place(settings["state"], named=state is not None)
    options = RunOptions(
        pipeline_file=absolute(pipeline),
        sheet_file=_sheet_file(sheet, dry_run=dry_run),
        params=params,
        sheet=sheet_from(**sheet_given),
        launch=folders.launch,
        folder=here,
        state=folders.state,
        work=absolute(settings["work"]),
        results=absolute(settings["results"]),
        cpus=settings["cpus"],
        memory_bytes=settings["memory"],
        slots=settings["slots"],
        limits={**(settings["limits"] or {}), **limits_from(limits)},
        executor=settings["executor"],
        slurm=settings.table("slurm"),
        suspend_always=suspend_always,
        only=only,
        drop_intermediates=settings["drop_intermediates"],
        dry_run=dry_run,
        rerun_changed=rerun_changed,
        accept_changed=accept_changed,
    )
    watched = None if dry_run else settings["events"]
    with observing(as_json=as_json, events=watched) as observer:
        report = run_pipeline(options, observer)
    if dry_run:
        if as_json:
            output.as_json_list(_for_machines(report.samples))
        return 0
    return finish(report, folders, as_json=as_json, quiet=watched == "-")


@click.command(short_help="Check pipeline and sheet; nothing runs.")
@pipeline_and_sheet
@param_option
@sheet_options
@click.option("--clean-copy", type=PATH, metavar="FILE",
              help="Write the sheet as it is read: UTF-8, commas, absolute paths.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ok, problems, notes.")
def check(
    pipeline: str, sheet: str, params: tuple[str, ...], clean_copy: str | None, as_json: bool, **sheet_given: Any
) -> int:
    """Check PIPELINE, its parameters and tools, and SHEET (- is standard input) with the files it names. Nothing runs.

    Exit status: 0 a run could start; 2 something is wrong: everything found is listed.
    """
    from canard_pipe.cli.exits import WRONG
    from canard_pipe.errors import InputError
    from canard_pipe.pipeline.run import check_pipeline

    try:
        prepared = check_pipeline(
            absolute(pipeline), _sheet_file(sheet, dry_run=True), params, sheet_from(**sheet_given)
        )
    except InputError as error:
        if not as_json:
            raise
        output.as_json({"ok": False, "problems": _problems(error), "notes": []})
        return WRONG
    if clean_copy is not None:
        _write_new(absolute(clean_copy), prepared.sheet.clean_copy())
    if as_json:
        output.as_json({"ok": True, "problems": [], "notes": prepared.notes()})
    else:
        output.lines(prepared.notes())
        output.line("nothing is wrong: a run can start")
    return 0


@contextmanager
def observing(*, as_json: bool = False, events: str | None = None) -> Iterator[Observer]:
    """Give the observer of a run: a live view on a terminal, plain lines elsewhere; close it at the end.

    ``as_json``: standard output is for JSON, so people read on standard error. ``events``: the file that gets a line
    for every event; ``-`` is standard output. Raises InputError where it cannot be written.
    """
    import contextlib
    import sys
    import time

    from canard_pipe.report.live import LiveView, PlainLines

    if as_json and events == "-":
        raise click.UsageError("--json and --events - would both write to standard output. Name a file for the events.")

    def now_us() -> int:
        return time.time_ns() // 1000

    to_stderr = as_json or events == "-"
    with contextlib.ExitStack() as stack:
        if events is not None:  # opened first: nothing is drawn where it cannot be
            from canard_pipe.pipeline.observer import Guarded, Several
            from canard_pipe.report.events import EventLines, open_events

            troubles: list[Callable[[str], None]] = []
            path = None if events == "-" else absolute(events)
            file = stack.enter_context(open_events(path, lambda text: troubles[0](text)))
        view: LiveView | PlainLines
        if output.is_terminal(sys.stderr if to_stderr else sys.stdout):
            view = LiveView(output.console(err=to_stderr), now_us)
        else:
            view = PlainLines(lambda text: output.line(text, err=to_stderr), now_us)
        stack.callback(view.close)
        if events is None:
            yield view
        else:
            troubles.append(Guarded(view).note)
            yield Several(view, EventLines(file.write, now_us))


def finish(report: RunReport, folders: Folders, *, as_json: bool, quiet: bool = False) -> int:
    """Print how a run ended and return its exit status, which is about the samples whether or not anybody can read.

    ``quiet``: standard output is for something else.
    """
    from canard_pipe.report.summary import summary_lines

    here = Path.cwd()
    lines = summary_lines(
        report.samples,
        exit_status=report.exit_status,
        results=report.results,
        here=here,
        interrupted=report.interrupted,
        state_option=folders.state_option,
    )
    with output.as_far_as_possible():
        output.lines(["", *lines], err=as_json or quiet)
        if as_json:
            output.as_json_list(_for_machines(report.samples))
    return report.exit_status


def _for_machines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return samples first; once and cohort functions are under ``function`` and have no sample."""
    marked = [row | {"function": row["sample"], "sample": None} if row["kind"] != "sample" else row for row in rows]
    return sorted(marked, key=lambda row: bool(row["kind"] != "sample"))


def _write_new(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
    except FileExistsError:
        raise click.UsageError(f"{file} exists and is not overwritten. Name another file.") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}.") from error


def _sheet_file(sheet: str, *, dry_run: bool) -> Path:
    if sheet != STANDARD_INPUT:
        return absolute(sheet)
    if not dry_run:
        raise click.UsageError("A run reads its sheet again when it goes on, so it needs a file. Save the sheet first.")
    return Path(sheet)


def _problems(error: Exception) -> list[dict[str, Any]]:
    problems = getattr(error, "problems", None)
    if not problems:
        return [{"file": None, "line": None, "column": None, "message": str(error), "hint": ""}]
    return [
        {"file": each.file, "line": each.line, "column": each.column, "message": each.message, "hint": each.hint}
        for each in problems
    ]
