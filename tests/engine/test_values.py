"""Stored values: equal and of the same type when they come back, and refused before any SQL otherwise."""

from __future__ import annotations

import datetime
import enum
import math
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canard_pipe.engine.values import Codec, Skipped
from canard_pipe.errors import RestoreError, ValueEncodeError
from tests.engine.conftest import start

CODEC = Codec(Path("/launch/folder"))
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(
    st.none(), st.booleans(), INT64, st.floats(allow_nan=False), TEXT, st.binary(max_size=20), st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])).map(lambda moment: moment.replace(fold=0)),
    st.timedeltas(), st.uuids(),
    st.decimals(allow_nan=False), TEXT.map(Skipped),
    st.sampled_from([Path("/launch/folder/a/b.bam"), Path("/launch/folder"), Path("/elsewhere"), Path("a/../b")]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4)
    | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(TEXT | TEXT.map(lambda text: f"${text}"), inner, max_size=4),
    max_leaves=12,
)


class Colour(enum.IntEnum):
    RED = 1


def never() -> object:
    pytest.fail("a saved step ran again")


def shape(value: object) -> object:
    """Return the value with the type of each part, so that 1, 1.0 and True differ, and 0.0 and -0.0."""
    if isinstance(value, list | tuple):
        return type(value), [shape(item) for item in value]
    if isinstance(value, dict):
        return dict, [(key, shape(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(VALUES)
def test_a_value_comes_back_equal_and_of_the_same_type(value):
    """S19, S22: also the order of a dict's keys."""
    assert shape(CODEC.decode(CODEC.encode(value))) == shape(value)


@settings(max_examples=25, deadline=None)
@given(value=VALUES)
def test_a_step_returns_the_stored_value_on_its_first_run_and_on_replay(value, tmp_path_factory):
    """F15, S19: through the database."""
    from canard_pipe.engine.database import Database

    # In a launch folder of its own: a path below it is looked for on replay, and these are not there.
    with Database(None, root=Path("/another"), pulse_seconds=None) as db:
        first = start(db)
        assert shape(first.step("a", lambda: value)) == shape(value)
        first.release()
        again = db.claim()
        assert again is not None
        assert shape(again.step("a", never)) == shape(value)
        again.complete(value)
        assert shape(db.result("t")) == shape(value)
        record = db.inspect("t")
        assert record is not None
        assert shape(record.checkpoints[0].value) == shape(value)


def test_a_float_that_is_no_number_comes_back():
    assert math.isnan(CODEC.decode(CODEC.encode(math.nan)))


def test_an_aware_time_comes_back_as_the_same_instant():
    import zoneinfo

    moment = datetime.datetime(2026, 11, 30, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    assert CODEC.decode(CODEC.encode(moment)) == moment


def loop() -> list[object]:
    own: list[object] = []
    own.append(own)
    return own


UNSTORABLE = [
    {1: "key"}, {"a": {1, 2}}, [object()], 2**63, -(2**63) - 1, 10**5000, "\ud800", {"\ud800": 1}, Colour.RED,
    1j, bytearray(b"x"), lambda: None, loop(), Skipped("\ud800"), Path("a\udcff"),
]


@pytest.mark.parametrize("value", UNSTORABLE, ids=lambda value: type(value).__name__)
def test_what_cannot_be_stored_fails_before_any_sql(db, faults, value):
    """G16, G17, E3."""
    claim = start(db)
    faults.names.clear()
    for send in (
        lambda: db.spawn("job", value), lambda: claim.complete(value), lambda: claim.step("a", lambda: value),
    ):
        with pytest.raises(ValueEncodeError):
            send()
    assert faults.names == []


def test_the_error_names_the_place_in_the_value():
    with pytest.raises(ValueEncodeError) as error:
        CODEC.encode({"lanes": [1, {"x": {1}}]})
    assert error.value.where == "$.lanes[1].x"


def test_nesting_that_is_allowed_can_be_read_by_sql(db):
    value: list[object] = []
    for _ in range(99):
        value = [value]
    start(db).step("deep", lambda: value)
    assert db.store.sql("SELECT variant_typeof(value) FROM canard_absurd.task_checkpoints")[1] == [("ARRAY(1)",)]


@pytest.mark.parametrize("value", [{"a": 1, "A": 2}, {"": 1}, "a\0b", {"a\0": 1}])
def test_odd_names_and_characters_round_trip_and_can_be_read_by_sql(db, value):
    """L16: keys that differ only in case are kept apart."""
    assert start(db).step("odd", lambda: value) == value
    assert len(db.store.sql("SELECT value FROM canard_absurd.task_checkpoints")[1]) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"$bytes": 3}', '{"$decimal": "x"}', '{"$timedelta": [1]}', '{"$timedelta": [999999999999, 0, 0]}',
     '{"$odd": 1}', '{"$dict": [1]}', '{"$project": 1}', '{"$uuid": 1}', '{"$datetime": "x"}', "[" * 100_000],
)
def test_what_is_no_stored_value_is_a_restore_error(db, text):
    """E8, G18: whatever kind of nonsense it is."""
    with pytest.raises(ValueError, match=r"."):
        CODEC.decode(text)
    db.spawn("job", 1, id="x")
    db.store.connection.execute("UPDATE canard_absurd.tasks SET input = ?", [text])
    with pytest.raises(RestoreError):
        db.inspect("x")


def test_a_uuid_is_not_text():
    found = CODEC.decode(CODEC.encode(uuid.UUID(int=5)))
    assert type(found) is uuid.UUID
