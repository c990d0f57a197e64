"""Sets of rows in statements: one row and many are rendered differently and mean the same."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canard_pipe.engine import statements
from canard_pipe.engine.database import Database
from canard_pipe.engine.literals import render
from canard_pipe.engine.statements import Cell, Table, split

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(st.sampled_from("'\\$\n;-\"a{}b.\0"))
ROW = st.fixed_dictionaries({
    "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
    "small": st.none() | st.integers(-(2**31), 2**31 - 1),
    "text": st.none() | TEXT,
    "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "yes": st.none() | st.booleans(),
    "names": st.none() | st.lists(TEXT, max_size=3),
})
(CHOICE,) = split(
    "SELECT b.whole, b.small, b.text, b.real, b.yes, b.names, typeof(b.small), coalesce(b.whole, 1) IS NULL\n"
    "FROM rows(whole BIGINT, small INTEGER, text VARCHAR, real DOUBLE, yes BOOLEAN, names VARCHAR[]) AS b;"
)


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    with Database(folder / "state.duckdb", root=folder) as database:
        yield database


@given(row=ROW)
@settings(max_examples=200, deadline=None)
def test_a_row_by_itself_holds_what_it_holds_among_others(db, row):
    _, alone = db.store.sql(render(CHOICE, {"rows": [row]}))
    _, among = db.store.sql(render(CHOICE, {"rows": [row, row]}))
    assert among == [alone[0], alone[0]]
    assert list(alone[0][:6]) == [row[name] for name in ("whole", "small", "text", "real", "yes", "names")]


def test_a_key_that_a_row_lacks_is_null(db):
    for rows in ([{"whole": 1}], [{"whole": 1}, {"text": "x"}]):
        _, found = db.store.sql(render(CHOICE, {"rows": rows}))
        assert found[0][:6] == (1, None, None, None, None, None)


def test_no_rows_are_a_table_without_rows(db):
    assert db.store.sql(render(CHOICE, {"rows": []}))[1] == []


def test_without_an_alias_one_row_is_a_table_too(db):
    (statement,) = split("WITH asked AS (SELECT * FROM rows(seq BIGINT)) SELECT seq + $more FROM asked;")
    assert any(isinstance(piece, Table) for piece in statement.for_one_row)
    assert db.store.sql(render(statement, {"rows": [{"seq": 2}], "more": 1}))[1] == [(3,)]


def taking_rows():
    """Return every statement of the package that takes rows."""
    found = []
    for package in statements.PACKAGES:
        for file in sorted(resources.files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
            if file.name.endswith(".sql"):
                for at, statement in enumerate(split(file.read_text(encoding="utf-8"))):
                    if "rows" in statement.parameters:
                        found.append(pytest.param(statement, id=f"{file.name}-{at}"))
    return found


SAMPLES = {"BIGINT": 7, "INTEGER": 7, "VARCHAR": "seven", "DOUBLE": 0.7, "BOOLEAN": True, "VARCHAR[]": ["seven"]}


@pytest.mark.parametrize("statement", taking_rows())
def test_both_renderings_of_every_statement_are_understood(db, statement):
    """And with NULL where a column may be NULL: a bare NULL has no type that a function could be chosen by."""
    columns = {name: kind for piece in statement.pieces if isinstance(piece, Table) for name, kind in piece.columns}
    row = {name: SAMPLES[kind] for name, kind in columns.items()}
    params = dict.fromkeys(statement.parameters - {"rows", "worker"}, 7) | {"worker": "w"}
    for rows in ([row], [dict.fromkeys(row)], [row, row]):
        _, plan = db.store.sql("EXPLAIN " + render(statement, params | {"rows": rows}))
        assert plan


HOT = [
    "claim_tasks", "save_checkpoints", "complete_tasks", "record_attempts", "renew_leases", "record_jobs",
    "publish_outputs",
]


@pytest.mark.parametrize("name", HOT)
def test_what_each_task_needs_does_without_a_table_for_one_row(name):
    """A clause goes only with an alias: so that nobody makes these slow unawares."""
    for statement in statements.load(name):
        assert any(isinstance(piece, Cell) for piece in statement.for_one_row)
        assert not any(isinstance(piece, Table) for piece in statement.for_one_row)
