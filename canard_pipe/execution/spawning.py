"""Start the members of a command. Loaded by the launcher only (see launcher.py): single-threaded, few imports.

``os.posix_spawn`` costs a quarter of a millisecond, needs no code between fork and exec, and reports what exec
said. Everything it cannot set (the working folder) is set in the launcher, which has only one thread.
"""

from __future__ import annotations

import errno
import os
import signal

TYPE_CHECKING = False  # typing is not imported: start-up
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# ignored or caught by the launcher or by Python itself; a command gets the defaults back
_RESTORED = [
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ,
]  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Failure(Exception):
    """A member could not be started."""

    def __init__(self, text: str, exit_code: int, *, disk_full: bool = False) -> None:
        super().__init__(text)
        self.text, self.exit_code, self.disk_full = text, exit_code, disk_full

    @property
    def cause(self) -> str:
        """The word for it in the record."""
        if self.disk_full:
            return "disk_full"
        return "not_found" if self.exit_code == NOT_FOUND else "not_executable"


def start(message: dict[str, Any], started: Callable[[list[str], int], None]) -> Failure | None:
    """Start every member of the command of a ``start`` message and report each pid; return what went wrong.

    Nothing is started unless all programs are there. If exec fails for a later member, earlier ones are running.
    """
    opened: list[int] = []
    try:
        os.chdir(message["folder"])
        programs = [find(argv[0], message["env"].get("PATH", os.defpath)) for argv in message["members"]]
        _start_all(message, programs, opened, started)
    except Failure as failure:
        return failure
    except OSError as error:
        what = f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else f"{error.strerror}"
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        return Failure(what, code, disk_full=error.errno in (errno.ENOSPC, errno.EDQUOT))
    finally:
        for descriptor in opened:
            os.close(descriptor)
        os.chdir("/")  # keeps no folder busy
    return None


def find(program: str, path: str) -> str:
    """Return the file that a program's name means, looked up in the command's own PATH. Raises Failure."""
    named = [program] if "/" in program else [f"{folder or '.'}/{program}" for folder in path.split(":")]
    refused = ""
    for candidate in named:
        if os.path.isfile(candidate):  # noqa: PTH113 (no pathlib here: start-up)
            if os.access(candidate, os.X_OK):
                return candidate
            refused = refused or candidate
    if refused:
        raise Failure(f"{refused} is not executable", NOT_EXECUTABLE)
    where = "" if "/" in program else f" in PATH ({path})"
    raise Failure(f"{program} was not found{where}", NOT_FOUND)


def start_apart(argv: list[str], environment: dict[str, str]) -> int:
    """Start a program that belongs to no command, without input and output; return its pid, 0 if it is not there."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            return _spawn(find(argv[0], environment.get("PATH", os.defpath)), argv, environment, (null, null, null))
        finally:
            os.close(null)
    except (Failure, OSError):
        return 0


def _start_all(
    message: dict[str, Any], programs: list[str], opened: list[int], started: Callable[[list[str], int], None]
) -> None:
    def keep(descriptor: int) -> int:
        opened.append(descriptor)
        return descriptor

    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    errors = keep(os.open(message["stderr"], writing, 0o666))
    output = keep(os.open(message["stdout"], writing, 0o666))
    source = keep(os.open(message["stdin"] or os.devnull, os.O_RDONLY))
    last = len(programs) - 1
    for position, (program, argv) in enumerate(zip(programs, message["members"], strict=True)):
        following, target = (-1, output) if position == last else (keep(fd) for fd in os.pipe())
        started(argv, _spawn(program, argv, message["env"], (source, target, errors)))
        for descriptor in (source, target):  # an open end of a pipe would keep its members waiting
            if descriptor != output:
                opened.remove(descriptor)
                os.close(descriptor)
        source = following


def _spawn(program: str, argv: list[str], environment: dict[str, str], standard: tuple[int, int, int]) -> int:
    try:
        return os.posix_spawn(
            program,
            argv,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(standard)],
            setsid=True,
            setsigmask=[],
            setsigdef=_RESTORED,
        )
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise Failure(f"{program} names an interpreter in its first line that is not there", NOT_FOUND) from error
        if error.errno == errno.ENOEXEC:
            raise Failure(f"{program} is neither a program nor begins with #!", NOT_EXECUTABLE) from error
        if error.errno == errno.E2BIG:
            raise Failure(f"the arguments of {program} are too long for this system", NOT_EXECUTABLE) from error
        raise Failure(f"{program} cannot be started: {error.strerror}", NOT_EXECUTABLE) from error
