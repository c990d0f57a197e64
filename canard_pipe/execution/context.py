"""What a handler gets as ``ctx`` where commands can run: a claim with process, pipe, shell, call and scratch."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

from canard_pipe.engine.claim import Claim, Grant
from canard_pipe.engine.proxies import users_environment
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.values import Codec
from canard_pipe.errors import CommandError, InputError, RestoreError
from canard_pipe.execution import calling, folders, outputs, shelltext
from canard_pipe.execution.command import Argument, Command, Options, command
from canard_pipe.execution.executor import Executor, Job
from canard_pipe.execution.outcome import CommandRun
from canard_pipe.execution.record import Identity
from canard_pipe.execution.retry import Tries

T = TypeVar("T")


class CommandContext(Claim):
    """A claim that runs commands; see :class:`Options` for what each command can be given.

    A command is known by its task, its step and its place in the step (the first, the second, ...), so the commands
    of a step must come in the same order each time the step runs. Commands outside of any step are allowed: they
    count on from the start of the handler, and since no step is ever saved for them, each is replayed from disk
    in every attempt of the task.

    All of them raise InputError before anything happens, BudgetError for more than the whole budget, CommandFailed,
    CommandTimeout, CommandNotStarted and OutputError for how the command ended, ReplayError if another command
    stands in its place, LeaseLost, and TaskReleased when the run stops.
    """

    def __init__(
        self,
        database: Tasks,
        grant: Grant,
        *,
        executor: Executor,
        work: Path,
        environ: Mapping[str, str],
        task_folder: str | None = None,
        tries: Tries | None = None,
    ) -> None:
        super().__init__(database, grant)
        self.tries = tries or Tries()
        self.executor, self.work, self.environ = executor, work, environ
        self.task_folder = folders.safe_name(grant.id) if task_folder is None else task_folder
        self._origin = f"{database.origin}:{grant.seq}"  # an ID that was removed and spawned again is another task
        self._archived: int | None = 0 if grant.attempt == 1 else None
        self._commands: Counter[str] = Counter()
        self._scratches: Counter[str] = Counter()
        self._ran_anew: set[str] = set()
        self._begun_in: dict[str, int] = {}  # step -> the latest attempt in which a command of it was begun
        self._directories: set[Path] = set()

    def process(self, args: Sequence[Argument], **options: Unpack[Options]) -> Path:
        """Run one program with its arguments, without a shell, and return the folder of the try (F19)."""
        return self._run(command([args], options))

    def pipe(self, *members: Sequence[Argument], **options: Unpack[Options]) -> Path:
        """Run programs, each reading what the one before writes; the status of every one counts (BUGS 17).

        Returns the folder of the try. A member ended by SIGPIPE is a failure too, unless ``sigpipe_ok=True``.
        """
        return self._run(command(members, options))

    def shell(self, text: str, /, **values: Any) -> Path:
        """Run a text in ``bash -euo pipefail`` and return the folder of the try.

        ``{x}`` becomes the value of the keyword ``x``, quoted for the shell; a list becomes several words. Braces of
        the shell are written ``{{`` and ``}}``. Keywords that are options (``cpus``, ``outputs``, ...) are options;
        ``{cpus}`` in the text means the option.
        """
        options = cast("Options", {name: values[name] for name in values if name in Options.__annotations__})
        given = {name: value for name, value in values.items() if name not in Options.__annotations__}
        unused = set(given) - shelltext.names(text)
        if unused:
            raise InputError(f"the text for the shell has no place {{{min(unused)}}} for a value given")
        filled = shelltext.fill(text, {"cpus": options.get("cpus", 1)} | given)
        return self._run(command([shelltext.bash(filled)], options, shell=filled))

    def call(self, fn: Callable[..., T], *args: Any, **options: Unpack[Options]) -> T:
        """Run a function of a Python file in a fresh interpreter and return its result, as stored.

        The function is defined at the top of its file; the file is loaded by its path, in the folder of the try.
        Arguments and result are stored values. A relative Path in the result is below that folder. Unlike the other
        three this returns what the function returned, since the folder would hold nothing else.
        """
        codec = Codec(self.database.root)  # the child knows no registered types
        argv, call = calling.describe(fn, args, codec)
        folder = self._run(command([argv], options, call=call))
        try:
            return cast("T", calling.result(folder, codec))
        except (OSError, ValueError) as error:
            raise RestoreError(
                f"the result of {call.label} in {folder} cannot be read: {error}", task_id=self.id, operation="call"
            ) from error

    def places(self) -> Sequence[Path]:
        """Return folders that a command in a container must be able to read; a layer above knows more."""
        return ()

    def output_problems(self, folder: Path, names: Sequence[str], *, new: bool) -> list[str]:  # noqa: ARG002
        """Return what is wrong with the outputs of a try that has ended with 0; ``new``: nobody has looked yet.

        A layer above may look deeper, which then takes long.
        """
        return outputs.problems(folder, names)

    def scratch(self) -> Path:
        """Return a folder for intermediate files that lives until the step is saved, whatever happens between.

        The same one when the step runs again, with what it holds. Raises InputError outside of a step.
        """
        step = self.step_name
        if step is None:
            raise InputError("ctx.scratch() is for use inside a step: it is removed when the step is saved")
        self._scratches[step] += 1
        number = self._scratches[step]
        place = folders.place_of(self.work, self.task_folder, self._identity(step, 1))
        folder = place / ("scratch" if number == 1 else f"scratch.{number}")
        folder.mkdir(parents=True, exist_ok=True)

        def remove() -> None:
            if self.has_saved(step):
                shutil.rmtree(folder, ignore_errors=True)
            else:  # a step within this step was saved
                self.after_save.append(remove)

        self.after_save.append(remove)
        return folder

    def _run(self, command: Command) -> Path:
        self.check()
        if self.seconds_left() < self.lease_seconds / 2:  # the first renewal by the executor comes after a third
            self.heartbeat()
        step = self.step_name or ""
        self._commands[step] += 1
        identity = self._identity(step, self._commands[step])
        run = CommandRun(self, self.adapted(command), identity, self._place(command, identity))
        brought = None
        try:
            brought = run.outcome(replay=step not in self._ran_anew, since=self._begun_in.get(step, 0))
        except CommandError as error:
            error.task_id = self.id
            raise
        finally:
            if brought is None or not brought.replayed:
                self._ran_anew.add(step)
        self._begun_in[step] = max(self._begun_in.get(step, 0), brought.task_attempt if brought.replayed else 0)
        return brought.folder

    def adapted(self, command: Command) -> Command:
        """Return the command as it is to run: a subclass may let it ask for more."""
        return command

    def command_begins(self, job: Job) -> None:
        """A try of a command is about to start; for subclasses that tell somebody."""

    def command_ended(self, job: Job, state: str, cause: str | None, facts: Mapping[str, Any]) -> None:
        """The end of a try was taken in; ``facts`` are columns of ``jobs``. For subclasses that tell somebody."""

    def _identity(self, step: str, ordinal: int) -> Identity:
        if self._archived is None:
            self._archived = int(self.database.query("steps_archived", task_seq=self.seq)[0][0])
        origin = self._origin if self._archived == 0 else f"{self._origin}+{self._archived}"
        return Identity(self.id, step, ordinal, origin)

    def steps_archived(self) -> None:
        """Let no command that ended before count for what runs from now on."""
        self._archived = None

    def _place(self, command: Command, identity: Identity) -> Path:
        if command.directory is None:
            return folders.place_of(self.work, self.task_folder, identity)
        place = (self.database.root / command.directory).absolute()
        if place in self._directories:  # S38
            raise InputError(f"two commands of one attempt cannot have the same directory {place}")
        self._directories.add(place)
        return place


def contexts(
    executor: Executor,
    work: Path,
    *,
    environ: Mapping[str, str] | None = None,
    task_folder: Callable[[Grant], str] = lambda grant: folders.safe_name(grant.id),
    tries: Tries | None = None,
) -> Callable[[Tasks, Grant], CommandContext]:
    """Return what makes the contexts of a database: to be given to it as ``claim_type``.

    ``work`` is where folders of tries go, ``environ`` the run's environment (that of the process by default),
    ``task_folder`` names the folder of a task below ``work``, ``tries`` holds for what a command's own does not name.
    """
    run_environment = users_environment() if environ is None else dict(environ)

    def make(database: Tasks, grant: Grant) -> CommandContext:
        return CommandContext(
            database, grant, executor=executor, work=work.absolute(), environ=run_environment,
            task_folder=task_folder(grant), tries=tries,
        )

    return make
