"""Values as SQL literals: what DuckDB reads back is what was given."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canard_pipe.engine.literals import literal, render
from canard_pipe.engine.statements import parse, split
from canard_pipe.engine.store import Store
from canard_pipe.errors import InputError


@pytest.fixture(scope="module")
def store():
    store = Store(None)
    yield store
    store.close()


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from("'\\$\0\n;-\"a{}")),
    st.binary(max_size=50),
)


@given(value=VALUES)
@settings(max_examples=300, deadline=None)
def test_every_value_comes_back_as_it_was(store, value):
    """L14."""
    (statement,) = split("SELECT $value")
    _, rows = store.sql(render(statement, {"value": value}))
    (found,) = rows[0]
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_comes_back(store):
    _, rows = store.sql(f"SELECT {literal(math.nan)}")
    assert math.isnan(rows[0][0])


def test_a_value_that_looks_like_a_parameter_is_not_replaced(store):
    (statement,) = split("SELECT $first, $second")
    _, rows = store.sql(render(statement, {"first": "$second", "second": "'; DROP TABLE x; --"}))
    assert rows == [("$second", "'; DROP TABLE x; --")]


@pytest.mark.parametrize("value", [2**63, [{"a": 1}], {"a": 1}, "\ud800"])
def test_what_sql_cannot_spell_is_refused(value):
    with pytest.raises(InputError):
        literal(value)


def test_a_missing_value_is_refused():
    with pytest.raises(InputError, match="limit"):
        render(parse("SELECT $limit"), {})
