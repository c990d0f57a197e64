"""From what was raised to the exit status and what the user is told: the one place that decides both."""

from __future__ import annotations

import errno
import os
import tempfile
import time
import traceback
from pathlib import Path

import click

from canard_pipe.cli import output
from canard_pipe.cli.session import Session
from canard_pipe.errors import (
    CanardError,
    CloseError,
    ConnectionClosed,
    ExtensionError,
    InputError,
    MaintenanceError,
    PipelineFileError,
    SchemaError,
    SheetError,
    StateHeld,
    StorageError,
)

DONE, NOT_DONE, WRONG, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130
_COULD_NOT_RUN = (
    StateHeld, StorageError, SchemaError, ExtensionError, ConnectionClosed, MaintenanceError, CloseError,
)  # fmt: skip
# What a disk or file system does to any program; nobody's fault in the code.
_OF_THE_SYSTEM = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.EMFILE,
    errno.ENFILE, errno.ENOMEM, errno.EFBIG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST,
})  # fmt: skip


def status_of(error: BaseException) -> int:
    """Return the exit status that stands for an exception."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, InputError | click.ClickException):
        return WRONG
    if isinstance(error, _COULD_NOT_RUN) or (isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM):
        return COULD_NOT_RUN
    return NOT_DONE


def told(error: BaseException, session: Session) -> int:
    """Tell the user what went wrong, on standard error, and return the exit status.

    Nobody sees a traceback for their own or the system's mistake. That of a fault of the program goes to a file;
    with CANARD_DEBUG=1 it is raised.
    """
    status = status_of(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else NOT_DONE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # as `canard-pipe status | head`
        output.discard()
        return NOT_DONE
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        output.line("interrupted", err=True)
    elif isinstance(error, CanardError):
        if os.environ.get("CANARD_DEBUG") == "1":
            raise error
        output.lines(problem_lines(error), err=True)
    elif status == COULD_NOT_RUN:
        output.line(f"canard-pipe: {error}", err=True)
    else:
        if os.environ.get("CANARD_DEBUG") == "1":
            raise error
        where = write_traceback(error, session)
        output.line(
            f"canard-pipe: this is a fault of canard-pipe ({type(error).__name__}: {error}); "
            f"the traceback is in {where}",
            err=True,
        )
    return status


def problem_lines(error: CanardError) -> list[str]:
    """Return what is told of an error: one line, or a list of problems under a head line."""
    if isinstance(error, PipelineFileError | SheetError):
        what = "sheet" if isinstance(error, SheetError) else "pipeline"
        count = len(error.problems)
        head = f"canard-pipe: the {what} is wrong ({count} problem{'s' * (count != 1)}); nothing ran"
        return [head, *(f"  {problem}" for problem in error.problems)]
    problems = getattr(error, "problems", None)
    if isinstance(error, InputError) and problems:
        return ["canard-pipe: nothing ran", *(f"  {problem}" for problem in problems)]
    if isinstance(error, CloseError):
        return [f"canard-pipe: {error.message}", *(f"  {each}" for each in error.exceptions)]
    return [f"canard-pipe: {error}"]


def write_traceback(error: BaseException, session: Session) -> Path:
    """Write the traceback to a file in the state folder, or where temporary files go, and return its path."""
    text = "".join(traceback.format_exception(error))
    name = f"fault-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    for folder in (session.state, Path(tempfile.gettempdir())):
        if folder is not None and folder.is_dir():
            try:
                (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            except OSError:
                continue
            return folder / name
    return Path(os.devnull)
