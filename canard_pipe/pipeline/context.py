"""What a pipeline's functions get: the sample, and ctx with parameters, other functions' results and publishing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from canard_pipe.engine.attempt import Handler
from canard_pipe.engine.claim import Grant
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.values import Skipped
from canard_pipe.errors import (
    HandlerExit,
    InputError,
    InputFileError,
    Problem,
    SampleSkipped,
    SheetError,
    TaskReleased,
    TaskSuspended,
)
from canard_pipe.execution import folders
from canard_pipe.execution.command import Command
from canard_pipe.execution.context import CommandContext
from canard_pipe.execution.executor import Executor, Job
from canard_pipe.pipeline import cohorts, items, planning
from canard_pipe.pipeline.checker import Checker
from canard_pipe.pipeline.definition import Function, Pipeline
from canard_pipe.pipeline.observer import Observer
from canard_pipe.pipeline.overrides import Overrides
from canard_pipe.pipeline.params import Params
from canard_pipe.pipeline.publishing import Publisher
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.step_code import StepCode

CHECK_STEP = "check-inputs"


@dataclass(slots=True)
class RunSetting:
    """What the contexts of one run share. The rest is there once it has started."""

    pipeline: Pipeline
    params: Params
    work: Path
    results: Path
    observer: Observer
    environ: Mapping[str, str]
    code: StepCode
    module: ModuleType
    executor: Executor | None = None
    checker: Checker | None = None
    publisher: Publisher | None = None
    overrides: Overrides | None = None
    once_results: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One sample: its key as typed (parts of a key of several columns joined by ``/``) and its rows in sheet order."""

    key: str
    parts: tuple[str, ...]
    rows: tuple[SampleRow, ...]
    lines: tuple[int, ...]

    @property
    def row(self) -> SampleRow:
        """The only row. Raises InputError when there are several."""
        if len(self.rows) != 1:
            raise InputError(f"sample {self.key} has {len(self.rows)} rows (lines {self.lines}), but one is wanted")
        return self.rows[0]

    @property
    def input_bytes(self) -> int:
        """The bytes of the input files of all rows together; for ``memory=`` and ``time=``."""
        return sum(row.input_bytes for row in self.rows)


class PipelineContext(CommandContext):
    """The ``ctx`` of a pipeline's functions: a claim with commands, and what the pipeline adds."""

    def __init__(self, database: Tasks, grant: Grant, setting: RunSetting) -> None:
        if setting.executor is None:
            raise InputError("the run has not started")
        self.kind, self.key, self.generation = planning.parts_of_id(grant.id)
        self.folder, self.place = folder_of(setting.pipeline, grant)
        again = "" if self.generation == 1 else f"generation-{self.generation}"
        super().__init__(
            database,
            grant,
            executor=setting.executor,
            work=setting.work,
            environ=setting.environ,
            task_folder=str(PurePosixPath(folders.safe_name(setting.pipeline.name), again, self.folder, self.place)),
            tries=setting.pipeline.tries,
        )
        self._setting = setting
        self.input_files: list[Path] = []

    @property
    def params(self) -> Params:
        """The pipeline's parameters as attributes."""
        return self._setting.params

    def result_of(self, function: Callable[..., Any]) -> Any:
        """Return what a once or an earlier cohort function has returned. Raises InputError for any other."""
        name = getattr(function, "__name__", "")
        known = self._setting.pipeline.functions.get(name)
        if known is None or known.call is not function or known.kind == "sample":
            raise InputError(f"{name or function!r} is not a once or cohort function of this pipeline")
        rows = self.database.query("planned_task", pipeline=self._setting.pipeline.name, kind=known.kind, key=name)
        id = rows[0][0] if rows and rows[0][0] else planning.task_id(self._setting.pipeline, known, name, 1)
        if id not in self._setting.once_results:
            self._setting.once_results[id] = self.database.result(id)
        return self._setting.once_results[id]

    def publish(
        self, files: Mapping[str, Path], *, name: str = "publish", allow_empty: bool = False
    ) -> dict[str, Path]:
        """Put files and folders of tries into ``results/SAMPLE/`` (``results/cohort/``); return where each is.

        ``files`` maps the name of the result to its path. A durable step called ``name``: whole or not at all, and
        never by a claim that has lost its lease (docs/design.md, publishing). Raises PublishError.
        """
        if not isinstance(files, Mapping):
            raise InputError('ctx.publish takes a dict: {"name of the result": path}')
        publisher = self._setting.publisher
        if publisher is None:
            raise InputError("publishing needs a run")
        known = self.has_saved(name)
        published: dict[str, Path] = self.step(
            name,
            lambda: publisher.publish(self, files, self.folder, keep_alive=self._keep_alive, allow_empty=allow_empty),
        )
        if not known:
            self.tell("published", {"step": name, "files": {each: str(path) for each, path in published.items()}})
        return published

    def map(
        self, name: str, fn: Any, items: Iterable[Any], *, key: Callable[[Any], str | int] | None = None
    ) -> list[Any]:
        """Run ``fn(item, ctx)`` for each item as a durable child task of its own; return their results in order.

        ``fn`` stands at the top of the pipeline file or of a module that it imports. Items are rows of the sheet or
        other storable values. Raises SampleSkipped if an item has left itself out: then its sample does.
        See Claim.map for the rest.
        """
        results = super().map(name, fn, items, key=key)
        skipped = next((result for result in results if isinstance(result, Skipped)), None)
        if skipped is not None:
            raise SampleSkipped(skipped.reason)
        return results

    def item_task(self, fn: Any, name: str) -> str:
        """Return the name of the tasks of items: that of the function they belong to tells when they may run."""
        items.reference(fn, self._setting.module, name)
        return items.task_name(self.name)

    def item_input(self, fn: Any, name: str, key: str, item: Any) -> Any:
        """Return the input of an item: with how its function is found again, and its folders."""
        kept = items.reference(fn, self._setting.module, name)
        return items.input_of(self.folder, items.place_of(self.place, name, key), kept, item)

    def code_of(self, fn: Callable[..., Any]) -> str | None:
        """Return which function of the pipeline's folder made a step."""
        return self._setting.code.of(fn)

    def output_problems(self, folder: Path, names: Sequence[str], *, new: bool) -> list[str]:
        """Look at outputs as a command does, and once into those that htslib reads or that gzip has compressed."""
        problems = super().output_problems(folder, names, new=new)
        checker = self._setting.checker
        if not new or problems or checker is None:
            return problems
        deeper = [folder / name for name in names if not name.casefold().endswith(".json")]  # that was read just now
        return [problem for path in deeper for problem in checker.output(path, self._keep_alive)]

    def places(self) -> list[Path]:
        """Return the folders of the task's input files and of the files among the parameters."""
        named = [value for value in dict(self.params).values() if isinstance(value, Path)]
        return [path.parent for path in (*self.input_files, *named)]

    def adapted(self, command: Command) -> Command:
        """Let the command ask for at least what this task was retried with."""
        override = self._setting.overrides.of(self.seq, self.attempt) if self._setting.overrides is not None else None
        return command.at_least(override.memory_bytes, override.time_seconds) if override else command

    def command_begins(self, job: Job) -> None:
        """Tell the run's observer."""
        self.tell("command_started", self._of(job) | {"folder": str(job.folder)})

    def command_ended(self, job: Job, state: str, cause: str | None, facts: Mapping[str, Any]) -> None:
        """Tell the run's observer."""
        names = ("exit_code", "signal", "peak_memory_bytes", "cpu_seconds", "host")
        ended = {"state": state, "cause": cause, **{name: facts[name] for name in names}, "folder": str(job.folder)}
        self.tell("command_ended", self._of(job) | ended)

    def _of(self, job: Job) -> dict[str, Any]:
        return {"step": job.identity.step or None, "command": job.command.text(), "try": job.attempt}

    def tell(self, name: str, facts: Mapping[str, Any]) -> None:
        """Tell those who watch the run from outside of an event of this task."""
        kind, sample = planning.label_of_id(self.id)
        self._setting.observer.event(name, {"kind": kind, "sample": sample, **facts})

    def step_saved(self, name: str) -> None:
        """Tell the run's observer."""
        self._setting.observer.step(*planning.label_of_id(self.id), name)

    def _keep_alive(self) -> None:
        self.check()
        if self.seconds_left() < self.lease_seconds * 2 / 3:
            self.heartbeat()


def context_factory(setting: RunSetting) -> Callable[[Tasks, Grant], PipelineContext]:
    """Return what makes the contexts of a run."""
    return lambda database, grant: PipelineContext(database, grant, setting)


def folder_of(pipeline: Pipeline, grant: Grant) -> tuple[str, str]:
    """Return the folder of a task below the results and below the pipeline's part of ``work/``, and of an item also
    its place in that of ``work/``.

    An input that is damaged gives a folder too: the handler meets the damage.
    """
    kind, key, _ = planning.parts_of_id(grant.id)
    item = items.is_item(grant.id)
    if kind != "sample" and not item:
        return planning.shared_folder(pipeline, kind, key), ""
    try:
        given = json.loads(grant.input)
        return str(given["folder"]), str(given["place"]) if item else ""
    except (ValueError, KeyError, TypeError):
        return folders.safe_name(key), folders.safe_name(grant.id) if item else ""


def handlers(setting: RunSetting) -> dict[str, Handler]:
    """Return the engine's handlers of a pipeline's functions, by task name."""
    found = {function.name: _handler(setting, function) for function in setting.pipeline.functions.values()}
    found |= {items.task_name(name): _ending_alone(_item_handler(setting)) for name in found}
    return {name: _telling(handler) for name, handler in found.items()}


def _telling(handler: Handler) -> Handler:
    """Let the run's observer know that a task was claimed."""

    def run(given: Any, ctx: Any) -> Any:
        ctx.tell("claimed", {"attempt": ctx.attempt})
        return handler(given, ctx)

    return run


def _handler(setting: RunSetting, function: Function) -> Handler:
    def once(_given: Any, ctx: PipelineContext) -> Any:
        return function.call(setting.params, ctx)

    def sample(given: dict[str, Any], ctx: PipelineContext) -> Any:
        if "refused" in given:  # under skip_bad_rows
            raise SheetError([Problem(*each) for each in given["refused"]])
        rows = tuple(setting.pipeline.rows.model_validate(row) for row in given["rows"])
        ctx.input_files = [path for row in rows for path in row.files]
        _check_inputs(setting, rows, ctx)
        try:
            return function.call(Sample(given["key"], tuple(given["parts"]), rows, tuple(given["lines"])), ctx)
        except SampleSkipped as skipped:
            return Skipped(skipped.reason)

    def cohort(given: dict[str, Any], ctx: PipelineContext) -> Any:
        return function.call(cohorts.results(ctx.database, given), ctx)

    return _ending_alone({"once": once, "sample": sample, "cohort": cohort}[function.kind])


def _item_handler(setting: RunSetting) -> Handler:
    def item(given: dict[str, Any], ctx: PipelineContext) -> Any:
        fn = items.resolve(given["call"], setting.module)
        ctx.input_files = _files_in(given["item"])
        try:
            return fn(given["item"], ctx)
        except SampleSkipped as skipped:
            return Skipped(skipped.reason)

    return item


def _files_in(item: Any) -> list[Path]:
    """Return the files that an item names, as far as its own type tells."""
    if isinstance(item, SampleRow):
        return item.files
    values = item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else [item]
    return [value for value in values if isinstance(value, Path)]


def _ending_alone(handler: Handler) -> Handler:
    """Let what would end a program, such as ``sys.exit()`` in a user's function, end its task only."""

    def run(given: Any, ctx: Any) -> Any:
        try:
            return handler(given, ctx)
        except (Exception, TaskSuspended, TaskReleased):
            raise
        except BaseException as error:  # signals reach the main thread only, so this is the function's own doing
            raise HandlerExit(error) from error

    return run


def _check_inputs(setting: RunSetting, rows: tuple[SampleRow, ...], ctx: PipelineContext) -> None:
    """Read the sample's input files to their ends before its first step: many tools take half a file and exit 0."""
    files = [path for row in rows for path in row.files]
    checker = setting.checker
    if files and checker is not None:

        def check() -> list[Path]:
            for path in dict.fromkeys(files):
                findings = checker.input(path, ctx._keep_alive)
                if findings.problems:
                    raise InputFileError("; ".join(findings.problems), Path(path))
            return [Path(path) for path in files]

        ctx.step(CHECK_STEP, check)
