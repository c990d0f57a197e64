"""What people are told when a command did not succeed: which member, how, its last words, where to look."""

from __future__ import annotations

import errno
import json
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canard_pipe.errors import CommandError, CommandFailed, CommandNotStarted, CommandTimeout, OutputError
from canard_pipe.execution import calling, causes
from canard_pipe.execution.command import Command
from canard_pipe.execution.folders import last_lines
from canard_pipe.execution.record import Record

_SHELL_SIGNAL = 128


def failure_of(record: Record, command: Command, folder: Path, problems: Sequence[str] = ()) -> CommandError | None:
    """Return the error that a try means, or None if it succeeded. ``problems`` are those of its outputs.

    Its ``cause`` is the word of causes.py, its ``facts`` say the rest as data.
    """
    word = causes.of_record(record, folder)
    if word is None and not problems:
        return None
    evidence = record.evidence
    if word in (None, causes.EXIT, causes.DISK_FULL):
        evidence = causes.full_disk(folder)
        word = causes.DISK_FULL if evidence else word or causes.OUTPUT
    facts: dict[str, Any] = {
        "command": command.text(), "exit_code": record.exit_code, "signal": record.signal,
        "peak_memory_bytes": record.peak_memory_bytes, "oom": record.oom, "evidence": evidence,
    }  # fmt: skip
    full = "" if word != causes.DISK_FULL else f"\n  the disk of this folder is full: {evidence}"
    if record.succeeded:
        return OutputError(problems, folder=folder, cause=word, facts=facts, details=full)
    if word == causes.TIMEOUT:
        more = f"; {record.error}" if record.error else ""
        text = f"the command ran longer than its time and was ended: {command.text()}{more}"
        return CommandTimeout(_with_details(text, folder), folder=folder, facts=facts)
    if record.cause in (*causes.HOPELESS, causes.DISK_FULL):
        text = f"the command could not be started: {record.error or ''}{_where_paths_start(record, command)}"
        return CommandNotStarted(_with_details(text, folder), folder=folder, cause=record.cause, facts=facts)
    position = _culprit(record)
    if len(command.members) > 1:
        facts["member"] = shlex.join(command.members[position])
    if command.call is not None:
        facts |= _exception_of_call(folder)
    return CommandFailed(
        _with_details(_how(record, command, position, facts) + full, folder), folder=folder, cause=word,
        exit_code=record.exit_code, signal=record.signal, facts=facts,
    )  # fmt: skip


def not_prepared(error: OSError, command: Command, place: Path) -> CommandError | None:
    """Return the error that says that no folder could be made for a try below ``place`` since the disk is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    text = (
        f"the command could not be started: {command.text()}\n  the disk of its folder {place} is full: "
        f"{error.strerror}; make some space, or move the work folder with --work, then retry"
    )
    return CommandNotStarted(
        text, folder=place, cause=causes.DISK_FULL, facts={"command": command.text(), "evidence": error.strerror}
    )


def _where_paths_start(record: Record, command: Command) -> str:
    relative = any("/" in member[0] and not member[0].startswith("/") for member in command.members)
    if record.cause == causes.NOT_FOUND and relative:
        return "; relative paths are relative to the folder of the try"
    return ""


def _exception_of_call(folder: Path) -> dict[str, Any]:
    """Return what the function of a ctx.call has raised, and where in the user's file."""
    try:
        raised = json.loads((folder / calling.EXCEPTION).read_text(encoding="utf-8"))
        return {name: str(raised[name]) for name in ("type", "message", "where")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _how(record: Record, command: Command, position: int, facts: dict[str, Any]) -> str:
    if len(command.members) > 1:
        members = len(command.members)
        what = f"member {position + 1} of {members} of the pipe, {shlex.join(command.members[position])},"
    else:
        what = f"the command {command.text()}"
    raised = f": {facts['type']}: {facts['message']}, at {facts['where']}" if "where" in facts else ""
    return f"{what} {_ending(record)}{raised}"


def _culprit(record: Record) -> int:
    """Return which member says how the whole ended, from 0."""
    ends = [(member.exit_code, member.signal) for member in record.members]
    end = (record.exit_code, record.signal)
    return ends.index(end) if end in ends else 0


def _ending(record: Record) -> str:
    if record.ended_by == "scheduler":
        return f"did not come to its end: {record.error}"
    if record.ended_by == "memory":
        return f"was ended since its memory ran out: {record.evidence}"
    if record.oom:
        return f"was ended by the system, most likely since memory ran out (SIGKILL): {record.evidence}"
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
