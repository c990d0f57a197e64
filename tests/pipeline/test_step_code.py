from __future__ import annotations

import functools
import importlib.util

import pytest

from canard_pipe.pipeline.step_code import StepCode

SOURCE = '''
import math
from functools import lru_cache

FACTOR = 2
OTHER = 5


def helper(x):
    return x * FACTOR


def align(x):
    """Align."""
    return helper(x) + 1


class Tool:
    def run(self, x):
        return math.sqrt(x)


def handler(x):
    def inner():
        return align(x)
    plus = lambda: x + 1
    return inner, plus, [lambda: x, lambda: -x]
'''


@pytest.fixture
def load(tmp_path):
    """Write the file, load it, return the functions by name and the codes that are saved for them."""

    def load(source):
        file = tmp_path / "pipeline.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location("pipeline_under_test", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        inner, plus, (same, minus) = module.handler(1)
        functions = {"align": module.align, "run": module.Tool().run, "inner": inner, "plus": plus, "same": same,
                     "minus": minus, "partial": functools.partial(module.align, 3)}
        code = StepCode(tmp_path)
        return {name: code.of(fn) for name, fn in functions.items()}

    return load


def changed(tmp_path, saved):
    code = StepCode(tmp_path)
    return {name for name, text in saved.items() if code.has_changed(text)}


def test_every_kind_of_function_is_known_by_file_and_qualified_name(load):
    saved = load(SOURCE)
    assert saved["align"].startswith("pipeline.py align ")
    assert saved["run"].startswith("pipeline.py Tool.run ")
    assert saved["inner"].startswith("pipeline.py handler.<locals>.inner ")
    assert saved["partial"] == saved["align"]
    assert saved["same"] == saved["minus"]  # two in one line are told apart by nothing


def test_nothing_has_changed_after_comments_docstrings_layout_and_other_functions(load, tmp_path):
    """BUGS 42: white space is no change."""
    saved = load(SOURCE)
    edited = SOURCE.replace("x * FACTOR", "(x\n            * FACTOR)  # twice").replace('"""Align."""', '"""Other."""')
    (tmp_path / "pipeline.py").write_text("# a comment\n\n" + edited + "\n\ndef another():\n    return 0\n")
    assert changed(tmp_path, saved) == set()


@pytest.mark.parametrize(
    ("old", "new", "touched"),
    [
        ("helper(x) + 1", "helper(x) + 2", {"align", "partial", "inner"}),
        ("x * FACTOR", "x ** FACTOR", {"align", "partial", "inner"}),  # a function that it calls
        ("FACTOR = 2", "FACTOR = 3", {"align", "partial", "inner"}),  # a constant of the file
        ("OTHER = 5", "OTHER = 6", set()),
        ("import math", "import cmath as math", {"run"}),
        ("lambda: x + 1", "lambda: x + 2", {"plus"}),
        ("lambda: -x", "lambda: +x", {"same", "minus"}),
        ("def align", "def align_reads", {"align", "partial", "inner"}),
    ],
)
def test_a_change_is_seen_in_what_depends_on_it(load, tmp_path, old, new, touched):
    saved = load(SOURCE)
    (tmp_path / "pipeline.py").write_text(SOURCE.replace(old, new))
    assert changed(tmp_path, saved) == touched


def test_what_is_not_of_the_pipelines_folder_has_no_code(tmp_path):
    code = StepCode(tmp_path)
    assert code.of(len) is None
    assert code.of(importlib.util.find_spec) is None
    assert code.of(functools.partial(print, 1)) is None


def test_a_file_that_is_gone_or_broken_has_changed(load, tmp_path):
    saved = load(SOURCE)
    (tmp_path / "pipeline.py").write_text("def (")
    assert changed(tmp_path, saved) == set(saved)
    (tmp_path / "pipeline.py").unlink()
    assert changed(tmp_path, saved) == set(saved)
