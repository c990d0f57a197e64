"""status, why and logs: what the state says, from any terminal, while a run is going or not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import samples, steps
from canard_pipe.cli.options import state_option
from canard_pipe.cli.session import Folders, Session
from canard_pipe.report.selection import SORTS
from canard_pipe.report.wording import ENDED, STATES

if TYPE_CHECKING:
    from canard_pipe.report.logs import Piece

MOST_ROWS = 40
FOLLOW_SECONDS = 0.3


@click.command(short_help="Show samples, steps and counts, also while a run is going.")
@state_option
@click.option(
    "--only", "states", type=click.Choice(STATES), multiple=True, help="Only rows in this state; may be repeated."
)
@click.option("--sample", "samples", metavar="SAMPLE", multiple=True, shell_complete=samples,
              help="Only this sample, or those like 'S1*'; may be repeated.")
@click.option("--step", metavar="STEP", shell_complete=steps,
              help="Only rows that are in this step now, or have stopped there.")
@click.option("--sort", type=click.Choice(SORTS), help="The order of rows; recent: what changed last comes first.")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help=f"At most so many rows; 0 is all. [{MOST_ROWS}]")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Leave out so many rows first.")
@click.option("--counts", is_flag=True, help="Only how many are in each state and have saved each step.")
@click.option(
    "--pipeline", metavar="NAME", help="The pipeline, where the state holds several; the one run last by default."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per sample; with --counts one object.")
@click.pass_obj
def status(
    session: Session, /, state: str | None, states: tuple[str, ...], samples: tuple[str, ...], step: str | None,
    sort: str | None, reverse: bool, limit: int | None, offset: int, counts: bool, pipeline: str | None, as_json: bool,
) -> int:
    """Show every sample with its state and steps, and counts. Works while a run is going, from any terminal.

    Where there are more samples than rows, counts and the rows that need somebody are shown: not ended well, at work,
    or failed before. --limit, --offset, --sort, --only, --sample and --step choose others. With --json all rows are
    printed, unless some are chosen.

    Exit status: 0 the state could be read (whatever it says); 2 there is no state here, or nothing has the name that
    was given; 3 it cannot be read.
    """
    from canard_pipe.pipeline.access import open_view
    from canard_pipe.report.rows import read_status
    from canard_pipe.report.selection import EVERY, Selection

    folders = session.use(state)
    most = (EVERY if as_json else MOST_ROWS) if limit is None else limit or EVERY
    selection = Selection(states, samples, step, sort=sort, reverse=reverse, offset=offset, limit=0 if counts else most)
    asked_for = selection.filters or sort is not None or limit is not None or offset > 0
    with open_view(folders.state, folders.launch) as view:
        found = read_status(view, replace(selection, needy=not asked_for), pipeline=pipeline)
        if as_json and counts:
            from canard_pipe.report.status import summary_json

            output.as_json(summary_json(found, view))
            return 0
        if as_json:
            output.as_json_list(row.as_json() for row in sorted(found.rows, key=lambda row: row.kind != "sample"))
            return 0
        from canard_pipe.report.status import foot_lines, head_lines, status_table

        output.lines(head_lines(found, view, _now_us()))
    if found.rows:
        output.line()
        output.render(status_table(found.rows))
    foot = [] if counts else foot_lines(found, folders.state_option)
    if foot:
        output.lines(["", *foot])
    return 0


@click.command(short_help="Tell why a sample is in its state, and what happens next.")
@click.argument("sample", metavar="SAMPLE", shell_complete=samples)
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def why(session: Session, sample: str, state: str | None, as_json: bool) -> int:
    """Tell why SAMPLE is in its state: cause, command, exit code or signal, last lines of stderr, folder, history.

    SAMPLE is the ID as in the sheet, or the name of a once or cohort function.

    Exit status: 0 it is told (whatever the state); 2 there is no such sample, or no state here; 3 the state cannot be
    read.
    """
    from canard_pipe.pipeline.access import open_view
    from canard_pipe.report.why import explain, why_json, why_lines

    folders = session.use(state)
    with open_view(folders.state, folders.launch) as view:
        found = explain(view, sample)
    if as_json:
        output.as_json(why_json(found, _now_us()))
    else:
        output.lines(why_lines(found, _now_us(), folders.state_option))
    return 0


@click.command(short_help="Show the logs of a sample.")
@click.argument("sample", metavar="SAMPLE", shell_complete=samples)
@click.argument("step", metavar="[STEP]", required=False, shell_complete=steps)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until the sample has come to its end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead: folder, files and their sizes.")
@state_option
@click.pass_obj
def logs(session: Session, sample: str, step: str | None, follow: bool, as_json: bool, state: str | None) -> int:
    """Show what the commands of SAMPLE wrote, in their latest tries; only those of STEP where it is given.

    Exit status: 0 they are shown, or none has begun; 2 there is no such sample or step, or no state here; 3 the state
    cannot be read.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json exclude each other.")
    from canard_pipe.pipeline.access import open_view
    from canard_pipe.report.logs import files_of, latest_tries, whole

    folders = session.use(state)
    if follow:
        _print_pieces(_followed(folders, sample, step), folders)
        return 0
    with open_view(folders.state, folders.launch) as view:
        _, tries = latest_tries(view, sample, step)
    if as_json:
        output.as_json_list(files_of(folder) for folder in tries)
        return 0
    if not tries:
        output.line(f"no command of {sample} has begun", err=True)
    _print_pieces(whole(tries), folders)
    return 0


def _followed(folders: Folders, sample: str, step: str | None) -> Iterator[Piece]:
    from canard_pipe.pipeline.access import open_view
    from canard_pipe.report.logs import follow, latest_tries

    def look() -> tuple[list[Path], bool]:
        with open_view(folders.state, folders.launch) as view:
            row, tries = latest_tries(view, sample, step, may_come=view.source == "live")
            return tries, view.source != "live" or row.state in ENDED

    return follow(look, lambda: time.sleep(FOLLOW_SECONDS))


def _print_pieces(pieces: Iterable[Piece], folders: Folders) -> None:
    """Print pieces of logs, with a head line wherever the file changes."""
    current = None
    at_line_start = True
    for piece in pieces:
        place = (piece.folder, piece.name)
        if place != current:
            current = place
            path = piece.folder / piece.name
            shown = path.relative_to(folders.launch) if path.is_relative_to(folders.launch) else path
            output.line(("" if at_line_start else "\n") + f"==> {shown} <==")
        output.raw(piece.text)
        at_line_start = piece.text.endswith("\n")
        output.flush()
    if not at_line_start:
        output.line()


def _now_us() -> int:
    return time.time_ns() // 1000
