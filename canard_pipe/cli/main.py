"""``canard-pipe``: the group of commands. A command's module is imported only when the command is called."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from canard_pipe import __version__
from canard_pipe.cli import exits, output
from canard_pipe.cli.session import Session

# name: (module, what it does). Kept here so that --help imports nothing.
COMMANDS = {
    "run": ("running", "Run a pipeline over a sheet; the same line again resumes"),
    "status": ("looking", "Show samples, steps and counts, also while a run is going"),
    "why": ("looking", "Tell why a sample is in its state, and what happens next"),
    "logs": ("looking", "Show the logs of a sample"),
    "retry": ("steering", "Run failed or cancelled samples again, and what depends on them"),
    "cancel": ("steering", "Cancel samples and end their commands"),
    "check": ("running", "Check pipeline and sheet; nothing runs"),
    "config": ("configuring", "Show every setting, its value and where it comes from"),
    "report": ("reporting", "Write what a run did: one HTML page that opens offline, and trace.tsv"),
    "clean": ("cleaning", "List what may go from the work folder; remove it with --yes"),
    "sql": ("asking", "Ask the state in SQL, also while a run is going"),
    "backup": ("steering", "Copy the state to a new file, also while a run is going"),
    "serve": ("sharing", "Own the state for workers of other processes and machines"),
    "worker": ("sharing", "Take samples of a run that another process or machine owns"),
    "doctor": ("doctoring", "Tell whether this machine is ready; runs a small self-test"),
    "demo": ("demo", "Run the packaged example on made data"),
}
EXIT_STATUS = """\
Exit status: 0 everything is done or skipped (or the command did what was asked); 1 something is not; 2 the call, the
pipeline file or the sheet is wrong, and nothing ran; 3 it could not run: the state is held by another process, disk,
file system; 130 interrupted.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"canard_pipe.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if close and "did you mean" not in error.message.lower():
                raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error
            raise


@click.group(
    cls=LazyGroup, epilog=EXIT_STATUS, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True
)
@click.version_option(__version__, prog_name="canard-pipe", message="%(prog)s %(version)s")
def cli() -> None:
    """Run the same steps over many samples and get every sample to its end, whatever dies on the way.

    \b
    canard-pipe run pipeline.py samples.csv
    canard-pipe status
    canard-pipe why SAMPLE
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Execute the command line and end the process with its exit status."""
    gc.set_threshold(50_000)  # what a run keeps stays: a look through it after each 700 objects costs 3 %
    output.prepare()
    status = invoke(arguments)
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        output.flush()
        os._exit(status)  # a thread that a handler has left would keep the process for ever
    sys.exit(status)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Execute the command line and return its exit status; what went wrong is told on standard error."""
    session = Session()
    try:
        result = cli.main(
            None if arguments is None else list(arguments), prog_name="canard-pipe", standalone_mode=False, obj=session
        )
        output.flush()
    except BaseException as error:
        return exits.told(error, session)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
