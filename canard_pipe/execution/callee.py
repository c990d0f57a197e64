"""The program that ``ctx.call`` starts in the folder of a try: call a function by its file, keep its result.

Started as ``python -P callee.py``. Reads ``arguments.json``, writes ``result.json`` by rename. A traceback shows
the user's frames only.
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
        traceback.print_exception(type(error), error, users_part(error.__traceback__, content["file"]))
        return 1
    Path("result.json.new").write_text(text, encoding="utf-8")
    os.replace("result.json.new", "result.json")  # noqa: PTH105 - beside the write, in the current folder
    return 0


if __name__ == "__main__":
    sys.exit(main())
