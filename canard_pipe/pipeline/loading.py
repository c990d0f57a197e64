"""Load a pipeline file by its path. Whatever is wrong with it is told with file and line, without a traceback."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from canard_pipe.errors import PipelineFileError, Problem
from canard_pipe.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline with the file that it came from, the SHA-256 of the file's bytes, and the module made of it."""

    pipeline: Pipeline
    file: Path
    digest: str
    module: ModuleType


def load_pipeline(file: Path) -> LoadedPipeline:
    """Execute the pipeline file and return the one Pipeline that it defines. Raises PipelineFileError.

    The file's folder is first on the module path meanwhile, so that it can import its neighbours.
    """
    file = Path(file).absolute()
    if file.suffix != ".py":  # it would be executed, whatever it is
        raise _wrong(file, None, "is no Python file (.py)", "PIPELINE comes first, then SHEET")
    try:
        source = file.read_bytes()
    except OSError as error:
        raise _wrong(file, None, f"cannot be read: {error.strerror}", "give the path of a pipeline file") from error
    name = f"canard_pipeline_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
    if spec is None:
        raise _wrong(file, None, "cannot be loaded as Python", "")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module  # pydantic and dataclasses look their module up by its name
    sys.path.insert(0, str(file.parent))
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)  # noqa: S102 - running the user's file is the purpose
    except SyntaxError as error:
        raise _wrong(file, error.lineno, f"is not valid Python: {error.msg}", "") from error
    except PipelineFileError:
        raise
    except Exception as error:
        raise _wrong(file, _line_in(file, error), f"{type(error).__name__}: {error}", "") from error
    except SystemExit as error:
        raise _wrong(file, _line_in(file, error), "ends the program while it is loaded", "remove exit()") from error
    finally:
        sys.path.remove(str(file.parent))
    found = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    if len(found) != 1:
        what = "defines no Pipeline" if not found else f"defines {len(found)} pipelines"
        raise _wrong(file, None, what, 'one line such as: pipeline = Pipeline("name", rows=Row)')
    (pipeline,) = found.values()
    if not pipeline.functions:
        raise _wrong(file, None, "decorates no function", "put @pipeline.sample above one")
    return LoadedPipeline(pipeline, file, hashlib.sha256(source).hexdigest(), module)


def _line_in(file: Path, error: BaseException) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None


def _wrong(file: Path, line: int | None, message: str, hint: str) -> PipelineFileError:
    return PipelineFileError([Problem(str(file), line, None, message, hint)])
