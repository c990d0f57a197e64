"""Functions in a fresh interpreter: what ``ctx.call`` writes, starts and reads.

The function is found again by the path of its file and its name, its arguments and its result are stored values in
``arguments.json`` and ``result.json`` of the try's folder: no pickles, so nothing depends on the state of the run.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canard_pipe.engine.values import Codec
from canard_pipe.errors import InputError
from canard_pipe.execution.command import Call

ARGUMENTS, RESULT, EXCEPTION = "arguments.json", "result.json", "exception.json"
_CALLEE = Path(__file__).with_name("callee.py")


def describe(fn: Callable[..., Any], args: tuple[Any, ...], codec: Codec) -> tuple[tuple[str, ...], Call]:
    """Return the argument list that runs ``fn(*args)`` and its description.

    Raises InputError if the function cannot be found again from its file and name, ValueEncodeError if an argument
    cannot be stored.
    """
    file, module = _origin(fn)
    given = json.loads(codec.encode(list(args)))
    place = json.loads(codec.encode(file))
    content = {
        "version": 1,
        "file": str(file),
        "module": module,
        "function": fn.__name__,
        "arguments": given,
        "root": str(codec.root),
        "search": [entry for entry in sys.path if Path(entry).is_absolute()],
    }
    shown = ", ".join(json.dumps(item, ensure_ascii=False) for item in given)
    call = Call(
        label=f"{file.name}:{fn.__name__}({shown if len(shown) <= 200 else shown[:200] + '...'})",
        identity=json.dumps([place, fn.__name__, given], sort_keys=True),
        arguments=json.dumps(content, indent=1) + "\n",
    )
    return (sys.executable, "-P", str(_CALLEE)), call


def result(folder: Path, codec: Codec) -> Any:
    """Return what the function returned; a relative Path in it lies in the folder of the try. Raises ValueError."""
    return _below(folder, codec.decode((folder / RESULT).read_text(encoding="utf-8")))


def _origin(fn: Callable[..., Any]) -> tuple[Path, str | None]:
    name = getattr(fn, "__qualname__", repr(fn))
    if not isinstance(fn, types.FunctionType):
        raise InputError(f"ctx.call needs a function of a Python file, not {name}")
    if fn.__name__ == "<lambda>":
        raise InputError("ctx.call cannot call a lambda: a fresh interpreter finds a function by its name; use def")
    if "." in name:
        raise InputError(
            f"ctx.call cannot call {name}: a fresh interpreter finds only functions defined at the top of a file"
        )
    if fn.__globals__.get(fn.__name__) is not fn:
        raise InputError(f"ctx.call cannot call {name}: its file has something else under that name (a decorator?)")
    file = Path(fn.__code__.co_filename).absolute()
    if not file.is_file():
        raise InputError(f"ctx.call cannot call {name}: its file {file} is not there")
    return file, _module_in_package(fn, file)


def _module_in_package(fn: types.FunctionType, file: Path) -> str | None:
    """Return the full name of the function's module if it lies in a package, which its own imports may need."""
    module = str(fn.__globals__.get("__name__", ""))
    if not fn.__globals__.get("__package__") or module == "__main__":
        return None
    expected = Path(*module.split(".")).with_suffix(".py")
    return module if Path(*file.parts[-len(expected.parts) :]) == expected else None


def _below(folder: Path, value: Any) -> Any:
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, list | tuple):
        return type(value)(_below(folder, item) for item in value)
    if isinstance(value, Mapping):
        return {key: _below(folder, item) for key, item in value.items()}
    return value
