"""The folders of tries: ``WORK/TASK/STEP[.k]/attempt-N``. Made once, never used again (G28)."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.execution import environment, record
from canard_pipe.execution.command import Command
from canard_pipe.execution.record import Identity, Record

OUTSIDE_OF_STEPS = "+main"  # no step's folder can have this name: a plus is encoded there
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_ATTEMPT = re.compile(r"attempt-([1-9]\d*)")
_TASK_LENGTH, _STEP_LENGTH = 64, 40
_INTO_CONTAINERS = re.compile(r"^(APPTAINER|SINGULARITY)ENV_")
_TAKEN_FROM_CALLER = re.compile(r"HOME|USER|LOGNAME|SHELL|TERM")


def safe_name(text: str, longest: int = _TASK_LENGTH) -> str:
    """Return a name for a folder that stands for ``text`` only, on any file system (BUGS 67, 68).

    Other bytes than ASCII letters, digits and ``_-.`` are percent-encoded. ``~`` and eight digits of a hash follow
    where that is longer than ``longest`` (then it is cut) and where it has capitals (file systems may not tell
    them apart).
    """
    raw = text.encode(errors="surrogatepass")
    encoded = "".join(chr(byte) if byte in _SAFE else f"%{byte:02x}" for byte in raw)
    if encoded[:1] in (".", "-"):  # hidden files, and options of careless tools
        encoded = f"%{ord(encoded[0]):02x}{encoded[1:]}"
    if len(encoded) <= longest and encoded == encoded.lower():
        return encoded
    return f"{encoded[: longest - 9]}~{hashlib.sha256(raw).hexdigest()[:8]}"


def place_of(work: Path, task_folder: str, identity: Identity) -> Path:
    """Return the folder of a command, below which its tries lie."""
    step = OUTSIDE_OF_STEPS
    if identity.step:  # a step named "x.2" is not the second command of "x"
        step = re.sub(r"\.(\d+)$", r"%2e\1", safe_name(identity.step, _STEP_LENGTH))
    return work / task_folder / (step if identity.ordinal == 1 else f"{step}.{identity.ordinal}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try on disk."""

    number: int
    folder: Path


def attempts(place: Path) -> list[Attempt]:
    """Return the tries of a command that are on disk, by number."""
    try:
        names = os.listdir(place)  # noqa: PTH208 - only names are wanted
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = (_ATTEMPT.fullmatch(name) for name in names)
    numbers = sorted(int(match[1]) for match in matches if match)
    return [Attempt(number, place / f"attempt-{number}") for number in numbers]


def records(place: Path, identity: Identity) -> list[tuple[Attempt, Record | None]]:
    """Return the tries of a command with their records, by number."""
    return [(attempt, record.read(attempt.folder, identity)) for attempt in attempts(place)]


def new(place: Path, after: int) -> Attempt:
    """Make the folder of the next try, later than number ``after``. One that exists is never taken."""
    number = after + 1
    while True:
        folder = place / f"attempt-{number}"
        try:
            folder.mkdir()
        except FileNotFoundError:
            place.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            number += 1
        else:
            (folder / "tmp").mkdir()
            return Attempt(number, folder)


def write_script(
    folder: Path, command: Command, members: Sequence[Sequence[str]], variables: Mapping[str, str], note: str
) -> None:
    """Write ``command.sh``, which repeats the try by hand; ``members`` are what is started for the command.

    Of the caller's environment it takes what is personal (HOME and such) or may hold passwords (proxies).
    """
    own = {"TMPDIR": '"$PWD/tmp"', "CANARD_ATTEMPT": None, "CANARD_RUN": None}
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in note.splitlines()),
        "# Made by canard-pipe. Runs the command once more, in this folder, over what is there: copy the folder first.",
        'cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && mkdir -p tmp || exit',
        "set -o pipefail",
        "environment=(",
    ]
    for name, value in sorted(variables.items()):
        inner = _INTO_CONTAINERS.sub("", name)
        shown = own.get(inner, shlex.quote(value))
        if _TAKEN_FROM_CALLER.fullmatch(inner) or environment.PROXIES.fullmatch(inner):
            shown = f'"${{{inner}-}}"' if inner not in command.env else shown
        if shown is not None:
            lines.append(f"    {shlex.quote(name)}={shown}")
    lines.append(")")
    parts = [
        'env -i "${environment[@]}" ' + " ".join(shlex.quote(argument) for argument in member) for member in members
    ]
    parts[0] += f" < {shlex.quote(command.stdin or os.devnull)}"
    if command.stdout is not None:
        parts[-1] += f" > {shlex.quote(command.stdout)}"
    text = "\n".join([*lines, " |\n    ".join(parts), ""])
    script = folder / "command.sh"
    script.write_bytes(os.fsencode(text))
    script.chmod(0o755)


def last_lines(file: Path, lines: int = 20, most_bytes: int = 8192) -> list[str]:
    """Return the end of a log as text for people (BUGS 55).

    Bytes that are not UTF-8 become replacement characters; of a progress bar's line the last state stays; colours
    and other control characters are taken out.
    """
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - most_bytes))
            raw = opened.read()
    except OSError:
        return []
    found = []
    for line in raw.decode(errors="replace").split("\n"):
        states = [state for state in line.split("\r") if state.strip()]
        shown = _CONTROL.sub("", _ESCAPES.sub("", states[-1] if states else "")).expandtabs().rstrip()
        if shown:
            found.append(shown)
    return found[-lines:]


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
