"""What a pipeline file defines: a name, the sheet's rows, parameters, tools and plain functions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from canard_pipe.engine import arguments
from canard_pipe.engine.registered import Registry
from canard_pipe.errors import InputError
from canard_pipe.execution.resources import parse_limits
from canard_pipe.execution.retry import Given, Tries, tries_of
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheets.objects import Reader

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a pipeline. ``after`` names the functions whose tasks must have ended before its own start."""

    kind: str
    name: str
    call: Callable[..., Any]
    after: tuple[str, ...]
    allow_missing: bool
    max_failures: int


class Pipeline:
    """A pipeline: its functions become durable tasks, one per sample and one per once and cohort function.

    ``rows`` is the model of the sheet's rows, ``key`` the column or columns that name a sample (rows with the same
    key arrive together), ``params`` the parameters by name: a type, or a pair of type and default. ``tools`` are the
    programs that must be on PATH before anything starts. ``missing``: texts, such as ``NA``, that mean an empty cell.
    ``reader``: a function of the sheet's path that yields its rows as dicts of text, for sheets of another shape.
    ``types``: dataclasses and pydantic models that steps and functions may return. ``tries``: how often its commands
    are tried, by how they fail (see :class:`Tries`); a command's own ``tries`` comes first. ``limits``: named limits of
    a run, such as ``{"ftp": 2}``; ``--limit ftp=4`` at a run comes first.
    """

    def __init__(
        self,
        name: str,
        *,
        rows: type[SampleRow],
        key: str | tuple[str, ...] | None = None,
        params: Mapping[str, Any] | None = None,
        tools: Sequence[str] = (),
        missing: Sequence[str] = (),
        reader: Reader | None = None,
        types: Sequence[type] = (),
        tries: Tries | Given | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.name = arguments.text("the pipeline's name", name, 64)
        if "/" in name:
            raise InputError("the pipeline's name cannot hold a /")
        if not (isinstance(rows, type) and issubclass(rows, SampleRow)):
            raise InputError("rows must be a subclass of SampleRow")
        if isinstance(tools, str):
            raise InputError("tools must be a list of program names")
        self.rows, self.key = rows, key
        self.params, self.tools = dict(params or {}), tuple(tools)
        self.missing, self.reader = tuple(missing), reader
        self.types = tuple(types)
        self.tries, self.limits = tries_of(tries), parse_limits(limits)
        Registry(self.types)  # or InputError now, rather than in a run
        self.functions: dict[str, Function] = {}

    @overload
    def once(self, function: F) -> F: ...
    @overload
    def once(self, *, max_failures: int = ...) -> Callable[[F], F]: ...
    def once(self, function: Any = None, *, max_failures: int = 3) -> Any:
        """Make one task of ``function(params, ctx)``, shared by all samples: made once per content of its inputs."""
        return self._decorate(function, "once", after=(), max_failures=max_failures)

    @overload
    def sample(self, function: F) -> F: ...
    @overload
    def sample(self, *, max_failures: int = ...) -> Callable[[F], F]: ...
    def sample(self, function: Any = None, *, max_failures: int = 3) -> Any:
        """Make one task per sample of ``function(sample, ctx)``; it starts when every once function has its result."""
        return self._decorate(function, "sample", after=(), max_failures=max_failures)

    def cohort(
        self,
        *,
        after: Callable[..., Any] | Sequence[Callable[..., Any]],
        allow_missing: bool = False,
        max_failures: int = 3,
    ) -> Callable[[F], F]:
        """Make one task of ``function(results, ctx)`` that starts when every task of ``after`` has ended.

        It is blocked while a sample is failed, cancelled or changed, unless ``allow_missing``; skipped samples do
        not hold it back. ``results`` tells which samples were skipped or are missing.
        """
        wanted = (after,) if callable(after) else tuple(after)
        names = []
        for function in wanted:
            name = getattr(function, "__name__", "")
            if self.functions.get(name) is None or self.functions[name].call is not function:
                raise InputError(f"after={name or function!r} is not a function of this pipeline")
            names.append(name)
        return lambda function: self._decorate(
            function, "cohort", after=tuple(names), allow_missing=allow_missing, max_failures=max_failures
        )

    @property
    def sample_function(self) -> Function | None:
        """The function of the samples, if the pipeline has one."""
        return next((function for function in self.functions.values() if function.kind == "sample"), None)

    def of_kind(self, kind: str) -> list[Function]:
        """Return the functions of a kind, in the order of their definition."""
        return [function for function in self.functions.values() if function.kind == kind]

    def missing_tools(self) -> list[str]:
        """Return the declared tools that are not on PATH."""
        return [tool for tool in self.tools if shutil.which(tool) is None]

    def prerequisites(self, function: Function) -> tuple[str, ...]:
        """Return the names of the functions whose tasks must have ended before those of ``function`` start."""
        if function.kind == "once":
            return ()
        once = tuple(other.name for other in self.of_kind("once"))
        return once + tuple(name for name in function.after if name not in once)

    def _decorate(
        self, function: Any, kind: str, *, after: tuple[str, ...], allow_missing: bool = False, max_failures: int
    ) -> Any:
        if function is None:
            return lambda given: self._decorate(given, kind, after=after, max_failures=max_failures)
        name = getattr(function, "__name__", None)
        if not callable(function) or not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"@pipeline.{kind} needs a named function, not {function!r}")
        if name in self.functions:
            raise InputError(f"the pipeline has two functions named {name}")
        if kind == "sample" and self.sample_function is not None:
            raise InputError(f"a pipeline has one sample function; {self.sample_function.name} is there already")
        arguments.whole("max_failures", max_failures, 1, 1_000_000)
        self.functions[name] = Function(kind, name, function, after, allow_missing, max_failures)
        return function
