"""report: what a run did, as one HTML page and a table of tries."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import click

from canard_pipe import __version__
from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH
from canard_pipe.cli.options import state_option
from canard_pipe.cli.session import Session, absolute

DEFAULT, TRACE = "report.html", "trace.tsv"
HEAD_CHARACTERS = 400


@click.command(short_help="Write what a run did: one HTML page, and trace.tsv.")
@click.option("--output", "-o", "file", type=PATH, metavar="FILE", default=DEFAULT, show_default=True, help="The page.")
@click.option("--pipeline", metavar="NAME", help="The pipeline, where the state holds several; the one run last else.")
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the files written, rows, tries.")
@click.pass_obj
def report(session: Session, file: str, pipeline: str | None, state: str | None, as_json: bool) -> int:
    """Write one HTML page that opens without a network: states, what failed and why, commands in time, steps with
    times and memory, samples, settings. Beside it goes trace.tsv, with a line for each try of a command.

    An older report is replaced, another file of that name is not. Works while a run is going.

    Exit status: 0; 2 there is no state here, or FILE is something else; 3 the state cannot be read, the disk is full.
    """
    from canard_pipe.pipeline.access import open_view
    from canard_pipe.report.page.material import read_material
    from canard_pipe.report.page.render import GENERATOR, render
    from canard_pipe.report.page.trace import HEAD, trace_lines

    folders = session.use(state)
    page = absolute(file)
    trace = page.with_name(TRACE)
    if page == trace:
        raise click.UsageError(f"{TRACE} is the name of the table of tries. Name the page otherwise.")
    _may_be_replaced(page, GENERATOR)
    _may_be_replaced(trace, HEAD)
    with open_view(folders.state, folders.launch) as view:
        material = read_material(view, pipeline)
    _write(page, render(material, version=__version__, now_us=time.time_ns() // 1000))
    _write(trace, "".join(f"{line}\n" for line in trace_lines(material.tries)))
    if as_json:
        tries, rows = len(material.tries), len(material.status.rows)
        output.as_json({"page": str(page), "trace": str(trace), "rows": rows, "tries": tries})
        return 0
    output.line(f"{os.path.relpath(page)}: {len(material.status.rows)} rows, {page.stat().st_size / 1e6:.1f} MB")
    output.line(f"{os.path.relpath(trace)}: {len(material.tries)} tries of commands")
    return 0


def _may_be_replaced(file: Path, mark: str) -> None:
    """Raise click.UsageError if the file is there and was not made by this command."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            begins = opened.read(HEAD_CHARACTERS)
    except FileNotFoundError:
        if file.parent.is_dir():
            return
        raise click.UsageError(f"There is no folder {file.parent}.") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}.") from error
    if mark not in begins:
        raise click.UsageError(f"{file} is not a report and is not overwritten. Name another: --output FILE.")


def _write(file: Path, text: str) -> None:
    """Put the text in place in one step, so that an older report stays whole if this one fails."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="backslashreplace", dir=file.parent, delete=False,
                                     prefix=f".{file.name}.", newline="") as new:  # fmt: skip
        try:
            new.write(text)
            new.close()
            Path(new.name).chmod(0o666 & ~_umask())
            Path(new.name).replace(file)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
