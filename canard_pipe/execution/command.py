"""One call of a command, as data: the same for process, pipe, shell and call, and for every executor."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TypedDict

from canard_pipe.errors import InputError
from canard_pipe.execution.resources import (
    Escalate,
    Request,
    memory_bytes,
    more_memory,
    more_time,
    parse_limits,
    parse_seconds,
    time_seconds,
)
from canard_pipe.execution.retry import Given, Tries, tries_of

Argument = str | int | float | PurePath
OWN_FILES = frozenset({
    "command.sh", "stdout.log", "stderr.log", "status.json", "status.json.new", "tmp",
    "job.json", "slurm.sh", "slurm-array.sh", "slurm.log", "started", "revoked",
})  # fmt: skip


Check = Callable[[Path], str | None]


class Options(TypedDict, total=False):
    """What every command can be given.

    ``outputs``: files or folders, relative to the folder of the try, that must be there and whole afterwards.
    ``check``: a function of that folder that looks at what the command made; it returns None, or a text that says
    what is wrong, and may be called again.
    ``cpus``, ``memory`` ("4G"), ``time`` ("2h"): what is asked for; memory and time may be an ``Escalate``. The
    command is ended at ``time``, and when its tree uses a tenth more than ``memory``.
    ``tries``: how often it is tried, by how it fails; see :class:`Tries`.
    ``timeout``: seconds (or "90s") after which it is ended, if that is less than ``time``.
    ``limits``: names (or names with amounts) of limits of the run, such as licences.
    ``env``: variables for the command; a value of None takes the run's own. See environment.py for the others.
    ``modules``: names for the module command. ``conda``: the folder of a conda environment, from the launch folder.
    ``container``: an image, for apptainer, singularity, docker or podman. See surroundings.py for all three.
    ``stdin``: a file. ``stdout``: a name in the folder of the try that gets the last member's standard output.
    ``directory``: where the ``attempt-N`` folders go, instead of work/TASK/STEP; its own for each command.
    ``heartbeat_seconds``: how often the lease is renewed meanwhile; a third of the lease by default.
    ``sigpipe_ok``: members before the last may be ended by SIGPIPE (as before ``head``).
    ``executor``: "local" runs it on the machine of the run, within its budget, also where the run uses a scheduler.
    """

    outputs: Iterable[str | PurePath]
    check: Check | None
    tries: Tries | Given | None
    cpus: float
    memory: str | int | Escalate | None
    time: str | float | Escalate | None
    timeout: str | float | None
    limits: Mapping[str, int] | Iterable[str] | None
    env: Mapping[str, Argument | None] | None
    modules: Iterable[str]
    conda: str | PurePath | None
    container: str | PurePath | None
    stdin: str | PurePath | None
    stdout: str | None
    directory: str | PurePath | None
    heartbeat_seconds: float | None
    sigpipe_ok: bool
    executor: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A function to call in a fresh interpreter: what ``arguments.json`` says."""

    label: str
    identity: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Command:
    """A checked description of one call; nothing has happened yet. Made by :func:`command`.

    ``members`` are the argument lists of a pipe, mostly one. ``shell`` is the text of a shell command and ``call``
    the function of a call: what people meant, where ``members`` say how it is done.
    """

    members: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...] = ()
    check: Check | None = None
    tries: Tries = field(default_factory=Tries)
    cpus: float = 1
    memory: str | int | Escalate | None = None
    time: str | float | Escalate | None = None
    timeout_seconds: float | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    conda: str | None = None
    container: str | None = None
    stdin: str | None = None
    stdout: str | None = None
    directory: str | None = None
    heartbeat_seconds: float | None = None
    sigpipe_ok: bool = False
    executor: str | None = None
    shell: str | None = None
    call: Call | None = None

    def digest(self, root: Path) -> str:
        """Return what tells this command from another one: arguments, variables asked for, outputs, stdin, stdout,
        modules, conda environment, container.

        Not cpus, memory, time and the like: asking for more of them is the same command. Paths below the launch
        folder ``root`` count as relative to it, so that a project can be moved.
        """
        what: list[object] = [
            "call" if self.call else "process",
            self.call.identity if self.call else self.members,
            self.outputs,
            sorted(self.env.items()),
            self.stdin,
            self.stdout,
            self.sigpipe_ok,
        ]
        surroundings = [self.modules, self.conda, self.container]
        if any(surroundings):
            what.append(surroundings)
        text = json.dumps(what).replace(json.dumps(str(root))[1:-1], "$ROOT")
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def text(self) -> str:
        """Return the command as a person would type it."""
        if self.call:
            return self.call.label
        return self.shell if self.shell is not None else " | ".join(shlex.join(member) for member in self.members)

    def request(self, out_of_memory: int = 0) -> Request:
        """Return what it takes from the budget, after so many tries that ran out of memory."""
        return Request(self.cpus, memory_bytes(self.memory, out_of_memory) or 0, self.limits)

    def at_least(self, memory_bytes: int | None, seconds: float | None) -> Command:
        """Return the same command, asking for at least so much memory and time; None changes nothing.

        Where it asks for no memory, or has no time limit, ``memory_bytes`` is asked for, and there is still no limit.
        """
        timeout = self.timeout_seconds
        return replace(
            self,
            memory=self.memory if memory_bytes is None else more_memory(self.memory, memory_bytes),
            time=self.time if seconds is None or self.time is None else more_time(self.time, seconds),
            timeout_seconds=timeout if seconds is None or timeout is None else max(timeout, seconds),
        )

    def seconds(self, timeouts: int = 0) -> float | None:
        """Return after how many seconds it is ended, after so many tries that were; None: never."""
        bounds = [
            bound for bound in (time_seconds(self.time, timeouts), self.timeout_seconds) if bound is not None
        ]
        return min(bounds) if bounds else None


def command(
    members: Sequence[Sequence[Argument]],
    options: Options,
    *,
    shell: str | None = None,
    call: Call | None = None,
) -> Command:
    """Check everything that a caller gave and return the Command. Raises InputError, before anything happens."""
    unknown = set(options) - set(Options.__annotations__)
    if unknown:
        raise InputError(f"unknown option {min(unknown)!r}; options are {', '.join(Options.__annotations__)}")
    timeout, stdin, directory = options.get("timeout"), options.get("stdin"), options.get("directory")
    made = Command(
        members=tuple(_member(member) for member in members),
        outputs=_outputs(options.get("outputs", ())),
        check=_check(options.get("check")),
        tries=tries_of(options.get("tries")),
        cpus=options.get("cpus", 1),
        memory=options.get("memory"),
        time=options.get("time"),
        timeout_seconds=None if timeout is None else parse_seconds(timeout),
        limits=parse_limits(options.get("limits")),
        env=_variables(options.get("env")),
        modules=_modules(options.get("modules", ())),
        conda=_optional_text(options.get("conda"), "conda"),
        container=_optional_text(options.get("container"), "container"),
        stdin=None if stdin is None else argument_text(stdin, "stdin"),
        stdout=_stdout(options.get("stdout")),
        directory=None if directory is None else argument_text(directory, "directory"),
        heartbeat_seconds=options.get("heartbeat_seconds"),
        sigpipe_ok=bool(options.get("sigpipe_ok", False)),
        executor=_executor(options.get("executor")),
        shell=shell,
        call=call,
    )
    if not made.members:
        raise InputError("a command needs at least one program")
    if made.container is not None and (made.conda is not None or made.call is not None):
        raise InputError(
            "a container and a conda environment exclude each other" if made.conda is not None
            else "ctx.call runs in the Python of the run, so it cannot run in a container"
        )
    made.request()  # cpus and memory are checked here
    made.seconds()
    return made


def argument_text(value: object, what: str = "an argument") -> str:
    """Return an argument as the text that the program gets. Raises InputError if it has none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | PurePath):
        raise InputError(f"{what} must be text, a number or a path, not {value!r} ({type(value).__name__})")
    text = str(value)
    if "\0" in text:
        raise InputError(f"{what} {text!r} holds a NUL character, which no program can be given")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise InputError(f"{what} {text!r} is not valid text for this system") from error
    return text


def _member(member: Sequence[Argument]) -> tuple[str, ...]:
    if isinstance(member, str | bytes) or not isinstance(member, Sequence):
        raise InputError(f"a command is a list of arguments, not {member!r}; a text for the shell goes to ctx.shell")
    texts = tuple(argument_text(item) for item in member)
    if not texts or not texts[0]:
        raise InputError("the list of arguments is empty, or its first is: no program is named")
    return texts


def _outputs(outputs: Iterable[str | PurePath]) -> tuple[str, ...]:
    if isinstance(outputs, str | PurePath):
        raise InputError(f"outputs must be a list of names, not {str(outputs)!r}")
    names = []
    for output in outputs:
        name = argument_text(output, "an output")
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise InputError(f"the output {name!r} must be below the folder of the try: relative and without '..'")
        if name in OWN_FILES - {"stdout.log", "stderr.log"}:
            raise InputError(f"the output name {name!r} is canard-pipe's own")
        names.append(str(path))
    return tuple(names)


def _check(check: Check | None) -> Check | None:
    if check is not None and not callable(check):
        raise InputError(f"check must be a function of the folder of the try, not {check!r}")
    return check


def _modules(modules: Iterable[str]) -> tuple[str, ...]:
    if isinstance(modules, str):
        raise InputError(f"modules must be a list of names, not {modules!r}")
    names = tuple(argument_text(name, "a module") for name in modules)
    wrong = next((name for name in names if not name.strip() or name.startswith("-") or "\n" in name), None)
    if wrong is not None:
        raise InputError(f"{wrong!r} is not the name of a module")
    return names


def _optional_text(value: str | PurePath | None, what: str) -> str | None:
    if value is None:
        return None
    text = argument_text(value, what)
    if not text.strip() or text.startswith("-"):
        raise InputError(f"{what} must name something, not {text!r}")
    return text


def _executor(name: str | None) -> str | None:
    if name not in (None, "local"):
        raise InputError(f"executor can be 'local' for a command, not {name!r}: --executor of the run says the rest")
    return name


def _stdout(name: str | None) -> str | None:
    if name is None:
        return None
    text = argument_text(name, "stdout")
    if "/" in text or text in ("", ".", "..") or text in OWN_FILES - {"stdout.log"}:
        raise InputError(f"stdout must be the name of a new file in the folder of the try, not {text!r}")
    return text


def _variables(env: Mapping[str, Argument | None] | None) -> dict[str, str | None]:
    if env is not None and not isinstance(env, Mapping):
        raise InputError(f"env must be a dict of variables, not {type(env).__name__}")
    variables: dict[str, str | None] = {}
    for name, value in (env or {}).items():
        text = argument_text(name, "the name of a variable")
        if not text or "=" in text:
            raise InputError(f"{text!r} is not the name of a variable")
        variables[text] = None if value is None else argument_text(value, f"the variable {text}")
    return variables
