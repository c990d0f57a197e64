"""The only place that prints."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNLIMITED_WIDTH = 100_000


def prepare() -> None:
    """Let what is printed not fail for what it is: closed streams (`>&-`) swallow it, strange letters are escaped."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def line(text: str = "", *, err: bool = False) -> None:
    """Print a line; it is seen at once, also in a file."""
    click.echo(text, err=err)


def lines(texts: Iterable[str], *, err: bool = False) -> None:
    """Print lines."""
    for text in texts:
        click.echo(text, err=err)


def raw(text: str) -> None:
    """Print text as it is, without a line end."""
    click.echo(text, nl=False, color=True)


def as_json(value: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(_json(value))


def as_json_list(values: Iterable[Any]) -> None:
    """Print a JSON array with one element a line."""
    texts = [_json(value) for value in values]
    click.echo("[\n" + ",\n".join(texts) + "\n]" if texts else "[]")


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print CSV with a head line; NULL is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else plain(cell) for cell in row] for row in rows])
    click.echo(text.getvalue(), nl=False)


def render(renderable: RenderableType) -> None:
    """Print something of rich's. Without a terminal nothing is wrapped or cut, so that it can be searched."""
    if sys.stdout.isatty():
        console().print(renderable)
        return
    with (screen := console()).capture() as captured:
        screen.print(renderable)
    lines(text.rstrip() for text in captured.get().splitlines())


def console(*, err: bool = False) -> Console:
    """Return a console: colour only on terminals, and not with NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    return Console(
        file=stream,
        stderr=err,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
        width=None if stream.isatty() else UNLIMITED_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def is_terminal(stream: TextIO | None = None) -> bool:
    """Tell whether standard output (or ``stream``) is a terminal that can move its cursor."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


def flush() -> None:
    """Hand over what was printed, so that a closed pipe is noticed here."""
    sys.stdout.flush()


@contextlib.contextmanager
def as_far_as_possible() -> Iterator[None]:
    """Print what is printed in the block; if nobody can take it, say so on standard error and go on."""
    try:
        yield
        flush()
    except OSError as error:
        discard()
        with contextlib.suppress(OSError):
            line(f"canard-pipe: standard output takes nothing more: {error.strerror}", err=True)


def discard() -> None:
    """Print nothing more: who read standard output is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain(value: Any) -> Any:
    """Return a value of the database as JSON and people have it."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _json(value: Any) -> str:
    # An encoding without all characters would put escapes there that are not JSON's.
    utf8 = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    return json.dumps(value, ensure_ascii=not utf8, default=_foreign)


def _foreign(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else plain(value)
