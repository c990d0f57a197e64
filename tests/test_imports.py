"""Who may import whom (docs/design.md, parts and import direction). Imports are read from the source, not run.

Imports under ``if TYPE_CHECKING`` and inside functions count too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "canard_pipe"

# From the lowest layer to the highest: a layer may import itself and those before it.
LAYERS = ("errors", "engine", "execution", "pipeline", "report", "cli")

# Foreign packages that only some modules may import.
RESERVED = {
    "duckdb": ("canard_pipe.engine.store", "canard_pipe.engine.quack"),
    "psutil": ("canard_pipe.execution",),
    "pysam": ("canard_pipe.pipeline.checks", "canard_pipe.pipeline.checker"),
    "click": ("canard_pipe.cli",),
    "jinja2": ("canard_pipe.report",),
    "rich": ("canard_pipe.cli", "canard_pipe.report"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield the full name of everything that ``source`` imports. ``from a import b`` yields ``a.b``."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str | None:
    """Return the layer of a module of the package; None for the package itself, which names what is public."""
    parts = module.split(".")
    return parts[1] if parts[0] == "canard_pipe" and len(parts) > 1 and parts[1] in LAYERS else None


def is_within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def wrong_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Say what is wrong with the imports of one module."""
    own_layer = layer_of(module)
    wrong = []
    for imported in dict.fromkeys(imported_modules(source, module, is_package=is_package)):
        other_layer = layer_of(imported)
        if imported.split(".")[0] == "canard_pipe" and other_layer is None and own_layer not in (None, "cli"):
            wrong.append(f"{module} imports {imported} from the package itself, which stands above every layer")
        if own_layer and other_layer and LAYERS.index(other_layer) > LAYERS.index(own_layer):
            wrong.append(f"{module} imports {imported}, which lies above it")
        places = RESERVED.get(imported.split(".")[0])
        if places is not None and not is_within(module, places):
            wrong.append(f"{module} imports {imported}, which is only for {', '.join(places)}")
    return wrong


def test_no_module_imports_upwards_or_what_is_reserved_for_others():
    modules = sorted(PACKAGE.rglob("*.py"))
    assert modules
    wrong = [
        message
        for path in modules
        for message in wrong_imports(
            path.read_text(encoding="utf-8"), module_name(path), is_package=path.name == "__init__.py"
        )
    ]
    assert wrong == []


def test_every_part_of_the_package_has_its_layer():
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert (modules | packages) - {"__init__", "__main__"} <= set(LAYERS)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from canard_pipe.cli.main import main", "canard_pipe.engine.store"),
        ("import canard_pipe.pipeline.rows", "canard_pipe.execution.local"),
        ("from canard_pipe import pipeline", "canard_pipe.engine.worker"),
        ("from canard_pipe import Pipeline", "canard_pipe.report.table"),
        ("from ..pipeline import rows", "canard_pipe.engine.worker"),
        ("def later():\n    from canard_pipe.report import table", "canard_pipe.pipeline.run"),
        ("if TYPE_CHECKING:\n    from canard_pipe.engine import store", "canard_pipe.errors"),
        ("import duckdb", "canard_pipe.engine.database"),
        ("from duckdb import connect", "canard_pipe.cli.sql"),
        ("import psutil", "canard_pipe.engine.ownership"),
        ("import pysam.bcftools", "canard_pipe.pipeline.publishing"),
        ("import click", "canard_pipe.report.table"),
        ("from rich.table import Table", "canard_pipe.pipeline.run"),
    ],
)
def test_a_wrong_import_is_found(source, module):
    assert wrong_imports(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from canard_pipe.engine.store import Store", "canard_pipe.pipeline.run"),
        ("from canard_pipe.errors import InputError", "canard_pipe.engine.store"),
        ("from canard_pipe import errors", "canard_pipe.engine.store"),
        ("import duckdb", "canard_pipe.engine.store"),
        ("import pysam", "canard_pipe.pipeline.checks.bgzf"),
        ("import canard_pipe_extra, os.path", "canard_pipe.errors"),
    ],
)
def test_a_right_import_passes(source, module):
    assert wrong_imports(source, module) == []


def test_relative_imports_count_from_the_right_package():
    assert list(imported_modules("from . import a", "canard_pipe.engine", is_package=True)) == [
        "canard_pipe.engine.a"
    ]
    assert list(imported_modules("from .. import b", "canard_pipe.engine.c", is_package=False)) == [
        "canard_pipe.b"
    ]
