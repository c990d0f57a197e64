"""What people are told when a command did not succeed: which member, how, its last words, where to look."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

from canard_pipe.errors import CommandError, CommandFailed, CommandNotStarted, CommandTimeout
from canard_pipe.execution.command import Command
from canard_pipe.execution.folders import last_lines
from canard_pipe.execution.record import MemberEnd, Record

_SHELL_SIGNAL = 128


def failure_of(record: Record, command: Command, folder: Path) -> CommandError | None:
    """Return the error that a record means, or None if the command succeeded.

    The ``cause`` of a CommandFailed is ``exit``, ``signal`` or ``oom``.
    """
    facts: dict[str, Any] = {
        "command": command.text(), "exit_code": record.exit_code, "signal": record.signal,
        "peak_memory_bytes": record.peak_memory_bytes, "oom": record.oom,
    }
    if record.ended_by == "timeout":
        text = f"the command ran longer than its time and was ended: {command.text()}"
        return CommandTimeout(_with_details(text, folder), folder=folder, facts=facts)
    if record.cause is not None:
        hint = ""
        program = record.error or ""
        if record.cause == "not_found" and any("/" in m[0] and not m[0].startswith("/") for m in command.members):
            hint = "; relative paths are relative to the folder of the try"
        return CommandNotStarted(
            _with_details(f"the command could not be started: {program}{hint}", folder), folder=folder,
            cause=record.cause,
        )
    if record.succeeded:
        return None
    error = CommandFailed(
        _with_details(_how(record, command), folder), folder=folder, exit_code=record.exit_code,
        signal=record.signal, facts=facts,
    )
    if record.oom:
        error.cause = "oom"
    return error


def _how(record: Record, command: Command) -> str:
    position, member = _culprit(record)
    if len(command.members) > 1:
        what = f"member {position} of {len(command.members)} of the pipe, {shlex.join(member.argv)},"
    else:
        what = f"the command {command.text()}"
    return f"{what} {_ending(record)}"


def _culprit(record: Record) -> tuple[int, MemberEnd]:
    for position, member in enumerate(record.members, 1):
        if (member.exit_code, member.signal) == (record.exit_code, record.signal):
            return position, member
    return 1, record.members[0]


def _ending(record: Record) -> str:
    if record.oom:
        return "was ended by the system, most likely since memory ran out (SIGKILL)"
    if record.signal == "SIGPIPE":
        return (
            "was ended by SIGPIPE: the next member stopped reading before the end (as head does); "
            "if that is meant, say sigpipe_ok=True"
        )
    if record.signal is not None:
        return f"was ended by {record.signal}"
    code = record.exit_code or 0
    if code == _SHELL_SIGNAL + signal.SIGPIPE:
        return (
            "ended with exit code 141: a member of a pipe in it was ended by SIGPIPE, since the next one stopped "
            "reading before the end (as head does); if that is meant, end that line with: || test $? = 141"
        )
    if code > _SHELL_SIGNAL:
        try:
            name = signal.Signals(code - _SHELL_SIGNAL).name
        except ValueError:
            return f"ended with exit code {code}"
        return f"ended with exit code {code} (of a shell: a program in it was ended by {name})"
    return f"ended with exit code {code}"


def _with_details(text: str, folder: Path) -> str:
    lines = last_lines(folder / "stderr.log")
    said = "".join(f"\n    {line}" for line in lines)
    return f"{text}\n  folder: {folder}" + (f"\n  last lines of stderr.log:{said}" if lines else "")
