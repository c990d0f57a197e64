"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from canard_pipe.cli.completing import PATH
from canard_pipe.cli.session import DEFAULT_STATE, absolute

if TYPE_CHECKING:
    from canard_pipe.pipeline.sheet import SheetOptions

state_option = click.option(
    "--state", "state", type=PATH, metavar="DIR", help=f"The folder of the state; {DEFAULT_STATE} by default."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per sample.")
profile_option = click.option("--profile", metavar="NAME", help="The profile of the settings to use.")
events_option = click.option(
    "--events", type=PATH, metavar="FILE",
    help="Add a JSON line to FILE for everything that happens; - is standard output."
)
param_option = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="A parameter of the pipeline; may be repeated."
)

limit_option = click.option(
    "--limit", "limits", metavar="NAME=N", multiple=True,
    help="How much of a named limit of the pipeline, such as ftp=2, commands may use at once; may be repeated.",
)  # fmt: skip

_SHEET_OPTIONS = (
    click.option("--encoding", metavar="NAME", help="The encoding of the sheet, such as latin-1; UTF-8 by default."),
    click.option("--delimiter", metavar="CHAR", help="What separates the cells of the sheet; by its name by default."),
    click.option("--pad", is_flag=True, help="Fill up rows of the sheet that have too few cells."),
    click.option("--checksums", is_flag=True, help="Verify columns such as fastq_1_md5; this reads every file."),
    click.option("--compare-content", is_flag=True,
                 help="An input file with another time but the same bytes has not changed; this reads files."),
    click.option("--no-header", "no_header", is_flag=True, help="The sheet has no header; name its --columns."),
    click.option("--columns", metavar="A,B,…", help="The names of the columns of a sheet without a header."),
    click.option("--format", "format_", type=click.Choice(["delimited", "illumina", "json"]),
                 help="What the sheet is; by its name and first line by default."),
    click.option("--units", type=PATH, metavar="FILE",
                 help="A second table with a row for each lane or run of a sample."),
    click.option("--on", metavar="A,B,…", help="The columns that join SHEET and --units."),
    click.option("--folder", type=PATH, metavar="DIR",
                 help="Where relative paths in the sheet start; its own folder by default."),
    click.option("--expand", is_flag=True, help="Expand ~ and $NAME in the paths of the sheet."),
    click.option("--twins", type=click.Choice(["note", "refuse"]), default="note",
                 help="What to do with names that are easily mistaken for one another; note by default."),
    click.option("--map-names", is_flag=True,
                 help="Give samples whose names cannot be used others, with _ for what they cannot hold."),
    click.option("--skip-bad-rows", is_flag=True, help="Run the other samples; one with bad rows fails and says why."),
)  # fmt: skip


def sheet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how the sheet is read; :func:`sheet_from` takes them."""
    for option in reversed(_SHEET_OPTIONS):
        command = option(command)
    return command


def sheet_from(
    encoding: str | None,
    delimiter: str | None,
    pad: bool,
    checksums: bool,
    compare_content: bool,
    no_header: bool,
    columns: str | None,
    format_: Literal["delimited", "illumina", "json"] | None,
    units: str | None,
    on: str | None,
    folder: str | None,
    expand: bool,
    twins: Literal["note", "refuse"],
    map_names: bool,
    skip_bad_rows: bool,
) -> SheetOptions:
    """Return how the sheet is to be read. Raises click.UsageError and InputError."""
    from canard_pipe.pipeline.sheet import SheetOptions

    if no_header != (columns is not None):
        raise click.UsageError("--no-header and --columns belong together.")
    if (units is None) != (on is None):
        raise click.UsageError("--units and --on belong together.")
    return SheetOptions(
        delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        encoding=encoding,
        format=format_,
        columns=None if columns is None else _names(columns),
        units=None if units is None else absolute(units),
        on=() if on is None else _names(on),
        pad=pad,
        twins=twins,
        map_names=map_names,
        folder=None if folder is None else absolute(folder),
        expand=expand,
        checksums=checksums,
        compare_content=compare_content,
        skip_bad_rows=skip_bad_rows,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def limits_from(given: tuple[str, ...]) -> dict[str, int]:
    """Return the limits of ``--limit``. Raises click.UsageError."""
    limits = {}
    for text in given:
        name, _, amount = text.partition("=")
        if not name or not amount.isascii() or not amount.isdecimal() or int(amount) < 1:
            raise click.UsageError(f"--limit wants NAME=N with a whole number from 1, such as ftp=2, not {text!r}.")
        limits[name] = int(amount)
    return limits


def pipeline_and_sheet(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments PIPELINE and SHEET."""
    command = click.argument("sheet", type=PATH, metavar="SHEET")(command)
    return click.argument("pipeline", type=PATH, metavar="PIPELINE")(command)
