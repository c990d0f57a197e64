"""Items of a pipeline's maps: which function runs them, found again after a crash, and what it gets.

A function is kept as the name of its module (None for the pipeline file, whose module's name depends on where the
file lies) and its own name, so that another process finds it in the file that it has loaded.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from canard_pipe.engine import mapping
from canard_pipe.engine.registered import Adapted
from canard_pipe.errors import InputError
from canard_pipe.execution.folders import safe_name
from canard_pipe.pipeline import planning
from canard_pipe.pipeline.definition import Pipeline

SUFFIX = ":item"


def task_name(function: str) -> str:
    """Return the name of the tasks of items whose root is a task of ``function``, or is an item of it."""
    return f"{function.removesuffix(SUFFIX)}{SUFFIX}"


def reference(fn: Any, module: types.ModuleType, map_name: str) -> list[str | None]:
    """Return how ``fn`` is found again. ``module`` is that of the pipeline file.

    Raises InputError unless it stands at the top of the pipeline file or of a module that this imports.
    """
    name, home = getattr(fn, "__qualname__", None), getattr(fn, "__module__", None)
    what = f"ctx.map({map_name!r}, …)"
    if not callable(fn) or name is None or home is None:
        raise InputError(f"{what} takes a function, not {fn!r}; what it needs besides the item goes into the item, "
                         "such as a tuple of both")
    if name.endswith("<lambda>"):
        raise InputError(f"{what} cannot run a lambda: after a crash it would not be found again; use def")
    if "." in name:
        raise InputError(f"{what} cannot run {name}: after a crash only functions at the top of a file are found again")
    own = home == module.__name__
    if _found(module if own else sys.modules.get(home), name) is not fn:
        raise InputError(f"{what} cannot run {name}: its module {home} has something else under that name")
    return [None if own else home, name]


def resolve(kept: list[str | None], module: types.ModuleType) -> Callable[[Any, Any], Any]:
    """Return the function of a :func:`reference`. Raises InputError if it is not there any more."""
    home, name = kept
    found: Any = None
    if home is None:
        found = _found(module, str(name))
    else:
        try:
            found = _found(sys.modules.get(home) or importlib.import_module(home), str(name))
        except ImportError as error:
            raise InputError(f"the module {home} of the function {name} cannot be imported: {error}") from error
    if not callable(found):
        raise InputError(
            f"the function {name} that this item began with is not in {home or 'the pipeline file'} any more; put it "
            "back, or retry the sample from the map on (--from MAP)"
        )
    return found  # type: ignore[no-any-return]


def input_of(folder: str, place: str, kept: list[str | None], item: Any) -> dict[str, Any]:
    """Return the input of an item's task: ``folder`` as of its sample, ``place`` is where it is below that."""
    return {"call": kept, "folder": folder, "place": place, "item": item}


def place_of(above: str, name: str, key: str) -> str:
    """Return the folder of an item below that of its sample; unique without regard to case."""
    return str(PurePosixPath(above, safe_name(name, 40), safe_name(key)))


def stored_types(pipeline: Pipeline) -> list[type | Adapted]:
    """Return what a database of this pipeline can store: its types, and the rows of its sheet."""
    rows = pipeline.rows
    return [*pipeline.types, Adapted(rows, planning.row_value, rows.model_validate)]


def is_item(id: str) -> bool:
    """Tell whether the id is that of an item's task."""
    return mapping.MARK in id


def _found(module: types.ModuleType | None, name: str) -> Any:
    return None if module is None else getattr(module, name, None)
