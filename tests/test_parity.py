"""docs/parity.md is true: every rule of the engine has a row, the code is there, and the named test names the rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import canard_pipe
from canard_pipe.execution.context import CommandContext

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT.parent / "shared" / "design" / "SEMANTICS.md"  # where the rules come from; beside some checkouts only
LIFTED = (1, *range(3, 17), *range(18, 25))  # of the limits, those that are better here (L13 is narrower)
IDS = [
    f"{letter}{number}"
    for letter, numbers in {
        "F": range(1, 25), "G": range(1, 31), "E": range(1, 19), "N": range(1, 5), "L": LIFTED, "S": range(1, 47),
    }.items()
    for number in numbers
]


class Row(NamedTuple):
    """``id`` is empty for what goes beyond the list."""

    id: str
    text: str
    where: tuple[str, ...]
    test: str


def rows_of(page: str) -> Iterator[Row]:
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) in (3, 4) and re.fullmatch(r"`[^`]+`", cells[-1]):
            id = cells[0] if len(cells) == 4 else ""
            yield Row(id, cells[-3], tuple(re.findall(r"`([^`]+)`", cells[-2])), cells[-1].strip("`"))


ROWS = list(rows_of((ROOT / "docs" / "parity.md").read_text(encoding="utf-8")))


@cache
def named_in(file: Path) -> dict[str, str]:
    """Return the text of each test and class of a file, by name."""
    text = file.read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in found}


def faults_of(row: Row) -> list[str]:
    """Return what is wrong with a row."""
    faults = [f"{row.id}: no {path}" for path in row.where if not (ROOT / "canard_pipe" / path).exists()]
    if not row.text or not row.where:
        faults.append(f"{row.id}: the row is open")
    file, _, name = row.test.partition("::")
    text = named_in(ROOT / "tests" / file).get(name) if (ROOT / "tests" / file).is_file() else None
    if text is None:
        faults.append(f"{row.id}: no test {row.test}")
    elif row.id and not re.search(rf"\b{row.id}\b", text):
        faults.append(f"{row.id}: {row.test} does not name it")
    return faults


def test_every_rule_has_one_row_in_order():
    assert [row.id for row in ROWS if row.id] == IDS


def test_what_each_row_names_is_there_and_its_test_names_the_rule():
    assert len(ROWS) > len(IDS)
    assert [fault for row in ROWS for fault in faults_of(row)] == []


def test_each_of_the_22_functions_can_be_called():
    """F1 to F22, by the names that the table gives them."""
    with canard_pipe.open() as db:
        db.spawn("job")
        claim = db.claim()
        assert claim is not None
        found: list[Any] = [
            canard_pipe.open, canard_pipe.serve, canard_pipe.connect, db.close, db.runtime, db.spawn, db.claim,
            db.inspect, db.tasks, db.result, claim.heartbeat, claim.complete, claim.fail, db.cancel, claim.step,
            claim.sleep, canard_pipe.run, canard_pipe.work, cast("CommandContext", claim).process, db.coordinator.start,
            db.coordinator.status, db.coordinator.stop,
        ]
    assert len(found) == 22
    assert all(callable(function) for function in found)
    names = [function.__name__ for function in found]
    texts = [row.text for row in ROWS if row.id.startswith("F")][:22]
    assert [name for name, text in zip(names, texts, strict=True) if name not in re.sub(r"opening", "open", text)] == []


@pytest.mark.parametrize(
    "row",
    [
        Row("F1", "", ("engine/schema.py",), "engine/test_looking.py::test_a_failed_open_leaves_nothing_open"),
        Row("F1", "x", ("engine/nowhere.py",), "engine/test_looking.py::test_a_failed_open_leaves_nothing_open"),
        Row("F1", "x", ("engine/schema.py",), "engine/test_looking.py::test_of_another_name"),
        Row("F2", "x", ("engine/schema.py",), "engine/test_looking.py::test_a_failed_open_leaves_nothing_open"),
    ],
)
def test_a_wrong_row_is_found(row):
    assert len(faults_of(row)) == 1


def test_the_ids_are_those_of_the_list():
    """The list itself is no part of the project; where it lies beside the checkout, nothing of it is forgotten."""
    if not LIST.is_file():
        pytest.skip("the list of rules is not here; the ids above stand for it")
    rows = re.findall(r"^\| ([FGENLS]\d+) \|(.*)\|$", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(id, cells.split("|")[-1].strip()) for id, cells in rows]
    assert len(listed) > 140
    wanted = {id for id, mark in listed if not id.startswith("L") or mark.startswith("beat")}
    assert wanted <= set(IDS)
    assert set(IDS) <= {id for id, _ in listed}
