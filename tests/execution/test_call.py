"""Functions in a fresh interpreter."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from canard_pipe.errors import CommandFailed, InputError, ValueEncodeError

PIPELINE = """
    import os
    import sys
    from pathlib import Path

    import helper

    def add(a, b):
        return helper.plus(a, b)

    def echo(*values):
        return list(values)

    def surroundings():
        path, duckdb = os.environ.get("PYTHONPATH"), "duckdb" in sys.modules
        return {"pid": os.getpid(), "cwd": Path.cwd(), "path": path, "duckdb": duckdb}

    def write(name):
        Path(name).write_text("made")
        return [Path(name), {"again": Path(name)}]

    def broken(n):
        return inner(n)

    def inner(n):
        raise ValueError(f"bad number {n}")

    def unstorable():
        return object()

    def leave():
        sys.exit(5)

    def outer():
        def nested():
            return 1
        return nested

    def decorate(fn):
        def wrapper():
            return fn()
        return wrapper

    @decorate
    def decorated():
        return 1

    shout = lambda: 1

    class Thing:
        def method(self):
            return 1
"""


@pytest.fixture
def pipeline(lab, monkeypatch):
    folder = lab.root / "my pipeline"
    folder.mkdir()
    (folder / "helper.py").write_text("def plus(a, b):\n    return a + b\n")
    file = folder / "pipe.py"
    file.write_text(textwrap.dedent(PIPELINE))
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("a_name_that_nobody_can_import", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("helper", None)


def test_function_runs_in_a_fresh_interpreter_and_its_result_comes_back(lab, pipeline):
    context = lab.claim()
    assert context.call(pipeline.add, 2, 3) == 5
    found = context.call(pipeline.surroundings, env={"EXTRA": "1"})
    assert found["pid"] != os.getpid()
    assert found["cwd"] == lab.root / "work" / "s1" / "+main.2" / "attempt-1"
    assert found["path"] is None
    assert found["duckdb"] is False, "a call must start fast"


def test_stored_values_go_there_and_back(lab, pipeline):
    values = [None, True, 2**60, 0.1, "ü", b"\xff", (1, 2), {"$a": [1]}, Path("/x"), lab.root / "y"]
    values.append(datetime.date(2026, 1, 2))
    assert lab.claim().call(pipeline.echo, *values) == values


def test_arguments_and_result_are_json_in_the_folder_of_the_try(lab, pipeline):
    lab.claim().call(pipeline.add, 2, 3)
    folder = lab.root / "work/s1/+main/attempt-1"
    said = json.loads((folder / "arguments.json").read_text())
    assert (said["function"], said["arguments"]) == ("add", [2, 3])
    assert json.loads((folder / "result.json").read_text()) == 5


def test_relative_paths_are_those_of_the_try(lab, pipeline):
    folder = lab.root / "work/s1/+main/attempt-1"
    made = lab.claim().call(pipeline.write, "out.txt", outputs=["out.txt"])
    assert made == [folder / "out.txt", {"again": folder / "out.txt"}]
    assert made[0].read_text() == "made"


def test_traceback_shows_the_users_frames(lab, pipeline):
    with pytest.raises(CommandFailed) as caught:
        lab.claim().call(pipeline.broken, 7)
    text = str(caught.value)
    assert "pipe.py:broken(7) ended with exit code 1" in text
    assert "in broken" in text
    assert "in inner" in text
    assert "ValueError: bad number 7" in text
    assert "callee.py" not in text


def test_result_that_cannot_be_stored_and_exit_are_failures(lab, pipeline):
    with pytest.raises(CommandFailed, match="cannot be stored"):
        lab.claim("s1").call(pipeline.unstorable)
    with pytest.raises(CommandFailed, match="exit code 5"):
        lab.claim("s2").call(pipeline.leave)


@pytest.mark.parametrize(
    ("take", "says"),
    [
        (lambda p: p.shout, "lambda"),
        (lambda p: p.outer(), "at the top of a file"),
        (lambda p: p.decorated, "at the top of a file"),
        (lambda p: p.Thing.method, "at the top of a file"),
        (lambda p: p.Thing().method, "needs a function"),
        (lambda p: p.Thing, "needs a function"),
        (lambda p: p.os.getpid, "needs a function"),
    ],
)
def test_functions_that_cannot_be_found_again_are_refused(lab, pipeline, take, says):
    with pytest.raises(InputError, match=says):
        lab.claim().call(take(pipeline))
    assert not (lab.root / "work").exists()


def test_arguments_that_cannot_be_stored_are_refused(lab, pipeline):
    with pytest.raises(ValueEncodeError):
        lab.claim().call(pipeline.add, object(), 1)


def test_call_is_replayed_with_its_result(lab, pipeline):
    context = lab.claim()
    first = context.call(pipeline.surroundings)
    context = lab.again(context)
    assert context.call(pipeline.surroundings) == first


def test_call_with_another_argument_is_another_command(lab, pipeline):
    context = lab.claim()
    context.call(pipeline.add, 1, 2)
    context = lab.again(context)
    with pytest.raises(Exception, match=r"add\(1, 3\)"):
        context.call(pipeline.add, 1, 3)


def test_function_of_a_package_keeps_its_own_imports(lab, monkeypatch):
    package = lab.root / "lib" / "lab_steps"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "numbers.py").write_text("def one():\n    return 1\n")
    (package / "steps.py").write_text("from . import numbers\n\ndef two():\n    return numbers.one() + 1\n")
    monkeypatch.syspath_prepend(str(lab.root / "lib"))
    steps = __import__("lab_steps.steps").steps
    monkeypatch.syspath_prepend(str(lab.root))
    assert lab.claim().call(steps.two) == 2
