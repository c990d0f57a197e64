"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from canard_pipe.cli.session import DEFAULT_STATE

if TYPE_CHECKING:
    from canard_pipe.pipeline.sheet import SheetOptions

state_option = click.option(
    "--state", "state", metavar="DIR", help=f"The folder of the state; {DEFAULT_STATE} by default."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per sample.")
profile_option = click.option("--profile", metavar="NAME", help="The profile of the settings to use.")
param_option = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="A parameter of the pipeline; may be repeated."
)

_SHEET_OPTIONS = (
    click.option("--encoding", metavar="NAME", help="The encoding of the sheet, such as latin-1; UTF-8 by default."),
    click.option("--delimiter", metavar="CHAR", help="What separates the cells of the sheet; by its name by default."),
    click.option("--pad", is_flag=True, help="Fill up rows of the sheet that have too few cells."),
    click.option("--checksums", is_flag=True, help="Verify columns such as fastq_1_md5; this reads every file."),
    click.option("--no-header", "no_header", is_flag=True, help="The sheet has no header; name its --columns."),
    click.option("--columns", metavar="A,B,…", help="The names of the columns of a sheet without a header."),
)


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
    no_header: bool,
    columns: str | None,
) -> SheetOptions:
    """Return how the sheet is to be read. Raises click.UsageError and InputError."""
    from canard_pipe.pipeline.sheet import SheetOptions

    if no_header != (columns is not None):
        raise click.UsageError("--no-header and --columns belong together.")
    named = None if columns is None else tuple(name.strip() for name in columns.split(","))
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    return SheetOptions(delimiter=delimiter, encoding=encoding, columns=named, pad=pad, checksums=checksums)


def pipeline_and_sheet(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments PIPELINE and SHEET."""
    command = click.argument("sheet", metavar="SHEET")(command)
    return click.argument("pipeline", metavar="PIPELINE")(command)
