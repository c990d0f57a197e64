"""The program that ``ctx.call`` starts in the folder of a try: call a function by its file, keep its result.

Started as ``python -P callee.py``. Reads ``arguments.json``, writes ``result.json`` by rename, or ``exception.json``:
type, message and the user's frame. A traceback shows the user's frames only.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any


def load(content: dict[str, Any]) -> ModuleType:
    """Import the file of the function: by its full name if it lies in a package, else by its path."""
    file, name = Path(content["file"]), content["module"]
    if name is not None:
        sys.path.insert(0, str(file.parents[name.count(".")]))
        return importlib.import_module(name)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def users_part(trace: TracebackType | None, file: str) -> TracebackType | None:
    """Return a traceback from its first frame in the user's file on; all of it if there is none."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename != file:
        part = part.tb_next
    return part or trace


def described(error: Exception, trace: TracebackType | None, file: str) -> dict[str, str]:
    """Return an exception as data, with the last frame in the user's file, or the last at all."""
    frames = traceback.extract_tb(trace)
    at = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1] if frames else None)
    where = "" if at is None else f"{at.filename}:{at.lineno} in {at.name}"
    return {"type": type(error).__name__, "message": str(error), "where": where}


def keep(name: str, text: str) -> None:
    """Write a file of the try, by rename."""
    Path(f"{name}.new").write_text(text, encoding="utf-8", errors="replace")
    os.replace(f"{name}.new", name)  # noqa: PTH105 - beside the write, in the current folder


def main() -> int:
    """Call the function that ``arguments.json`` names; return the exit code."""
    content = json.loads(Path("arguments.json").read_text(encoding="utf-8"))
    sys.path.extend(entry for entry in content["search"] if entry not in sys.path)
    try:
        import canard_pipe.engine.values
    except ImportError:  # not installed: this file lies in a checkout
        sys.path.append(str(Path(__file__).resolve().parents[2]))
        import canard_pipe.engine.values
    codec = canard_pipe.engine.values.Codec(Path(content["root"]))
    try:
        function = getattr(load(content), content["function"])
        value = function(*codec.decode(json.dumps(content["arguments"])))
        text = codec.encode(value)
    except Exception as error:
        trace = users_part(error.__traceback__, content["file"])
        traceback.print_exception(type(error), error, trace)
        keep("exception.json", json.dumps(described(error, trace, content["file"])))
        return 1
    keep("result.json", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
