"""Parameters of a pipeline: ``--param reference=ref.fa`` becomes ``ctx.params.reference``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError

from canard_pipe.errors import InputError, ParameterError, PipelineFileError, Problem
from canard_pipe.pipeline.rows import FILES, may_be_none
from canard_pipe.pipeline.sheets.files import InputFiles
from canard_pipe.pipeline.sheets.words import MISSING, did_you_mean, explain, quoted

_WHERE = "--param"


class Params:
    """The values of a pipeline's parameters as attributes; they cannot be changed.

    ``dict(params)`` gives them as a dict, ``Params(values)`` is the way back after a replay.
    """

    __slots__ = ("_values",)
    _values: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_values", dict(values or {}))

    def __getattr__(self, name: str) -> Any:
        # Copying asks a new object, which has no values yet, for its special methods.
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values) or "none"
            raise AttributeError(f"the pipeline has no parameter {quoted(name)}; it has {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"parameters cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"parameters cannot be changed: {name}")

    def keys(self) -> Iterator[str]:
        """Give the names, in the order of the pipeline file."""
        return iter(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[type[Params], tuple[dict[str, Any]]]:
        return Params, (dict(self._values),)

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Params) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        return f"Params({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def parse_params(
    spec: Mapping[str, Any], given: Sequence[str] = (), folder: Path | None = None, *, expand: bool = False
) -> Params:
    """Type and check ``name=value`` texts by what the pipeline declares.

    A declaration is a type (``InputFile``, ``int | None``), ``(type, default)``, or a default, whose type it then
    has. Without a value and a default, a type that allows None gives None. Files given as text are relative to
    ``folder`` (the current one) and are checked as those of a sheet; ``expand`` expands ``~`` and ``$NAME``.

    Raises ParameterError with everything that is wrong; PipelineFileError for a declaration that is none.
    """
    files = InputFiles(folder or Path.cwd(), expand=expand)
    declared = {name: _declaration(name, item) for name, item in spec.items()}
    problems: list[Problem] = []
    texts = _split(given, declared, problems)
    values: dict[str, Any] = {}
    for name, (adapter, optional, has_default, default) in declared.items():
        text = texts.get(name)
        if not text:
            if has_default and not isinstance(default, str):
                values[name] = default
                continue
            if not has_default:
                if optional:
                    values[name] = None
                elif not any(problem.file == _problem(name, "").file for problem in problems):
                    problems.append(_problem(name, MISSING, f"say {_WHERE} {name}=VALUE"))
                continue
            text = default
        try:
            values[name] = adapter.validate_python(text, context={FILES: files})
        except ValidationError as error:
            problems += [_problem(name, message, hint) for _, message, hint in explain(error)]
        except InputError as error:
            problems.append(_problem(name, str(error)))
    if problems:
        raise ParameterError(problems)
    return Params(values)


def _split(given: Sequence[str], declared: Mapping[str, Any], problems: list[Problem]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for item in given:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals:
            problems.append(_problem(name, f"{quoted(item)} has no =", f"say {_WHERE} NAME=VALUE"))
        elif name not in declared:
            known = ", ".join(declared) or "none"
            problems.append(
                _problem(
                    name, "the pipeline has no such parameter",
                    did_you_mean(name, declared) or f"its parameters: {known}",
                )
            )
        elif name in texts:
            problems.append(_problem(name, "is given twice", "give it once"))
        else:
            texts[name] = text.strip()
    return texts


def _problem(name: str, message: str, hint: str = "") -> Problem:
    return Problem(f"{_WHERE} {name}", None, None, message, hint)


def _declaration(name: str, item: Any) -> tuple[TypeAdapter[Any], bool, bool, Any]:
    """Give (what types it, whether None is allowed, whether there is a default, the default)."""
    if not name.isidentifier() or name.startswith("_"):
        raise PipelineFileError(
            [Problem(f"params[{name!r}]", None, None, "is no name for a parameter", "use letters, digits and _")]
        )
    has_default, default = False, None
    if isinstance(item, tuple):
        if len(item) != 2:
            raise PipelineFileError(
                [Problem(f"params[{name!r}]", None, None, "is neither a type nor (type, default)", "such as (int, 30)")]
            )
        item, default = item
        has_default = True
    elif item is None or not (isinstance(item, type) or get_origin(item) is not None):
        has_default, default = True, item
        item = str | None if item is None else type(item)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(item)
    except Exception as error:
        raise PipelineFileError(
            [Problem(f"params[{name!r}]", None, None, f"{item!r} is no type that a parameter can have")]
        ) from error
    return adapter, may_be_none(item), has_default, default
