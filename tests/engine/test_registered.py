"""Registered dataclasses and pydantic models as stored values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given

from canard_pipe.engine.database import Database
from canard_pipe.engine.values import Codec
from canard_pipe.errors import InputError, RestoreError, ValueEncodeError
from tests.engine.conftest import claimed, start
from tests.engine.test_values import VALUES, shape


@dataclasses.dataclass(frozen=True, slots=True)
class Depths:
    mean: float
    of: tuple[int, ...] = ()


@dataclasses.dataclass
class Doubled:
    number: Any
    seen: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.number = self.number * 2


class Lane(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    reads: Path
    depths: Depths | None = None
    number: int = pydantic.Field(default=1, alias="no")

    @pydantic.field_validator("number")
    @classmethod
    def more(cls, value: int) -> int:
        return value + 1


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 0


class Hidden(pydantic.BaseModel):
    _secret: int = 5


TYPES = (Depths, Doubled, Lane, Open, Hidden)
CODEC = Codec(Path("/launch/folder"), TYPES)


def back(value: object) -> Any:
    return CODEC.decode(CODEC.encode(value))


@pytest.mark.parametrize(
    "value",
    [
        Depths(1.5, (1, 2)), [Depths(1.0), {"a": (Depths(2.0),)}], Doubled(3),
        Lane(reads=Path("/launch/folder/x.fq"), depths=Depths(1.0)), Lane(reads=Path("x"), no=4),
        Open(a=1), Open.model_validate({"a": 1, "b": [Depths(0.5)], "$c": 2}), Doubled([Lane(reads=Path("y"))]),
    ],
    ids=repr,
)
def test_an_instance_comes_back_equal_and_of_the_same_type(value):
    """And no code of its class has run: neither __post_init__ nor a validator."""
    got = back(value)
    assert got == value
    assert type(got) is type(value)
    assert repr(got) == repr(value)
    if isinstance(value, pydantic.BaseModel):
        assert got.model_fields_set == value.model_fields_set


@given(VALUES)
def test_any_value_can_be_a_field(value):
    got = back(Depths(value, value))
    assert shape(got.mean) == shape(value)
    assert shape(got.of) == shape(value)


def test_only_exactly_what_is_registered_is_stored():
    @dataclasses.dataclass
    class Sub(Doubled):
        pass

    for value in (Sub(1), pydantic.create_model("Other")()):
        with pytest.raises(ValueEncodeError, match="registered"):
            CODEC.encode([value])
    with pytest.raises(ValueEncodeError, match="private"):
        CODEC.encode(Hidden())
    with pytest.raises(ValueEncodeError, match=r"at \$\.mean\[0\]"):
        CODEC.encode(Depths([object()]))  # type: ignore[arg-type]


def test_what_cannot_be_registered_is_refused():
    """G16; registering twice is once."""
    for wrong in (int, Depths(1.0), "Depths", dict):
        with pytest.raises(InputError):
            Codec(Path("/x"), [wrong])  # type: ignore[list-item]
    other = dataclasses.make_dataclass("Depths", ["x"])
    with pytest.raises(InputError, match="Depths"):
        Codec(Path("/x"), [Depths, other])
    codec = Codec(Path("/x"), [Depths, Depths])
    assert codec.types.register(Depths) is Depths


def test_classes_that_have_changed_since():
    """A new field takes its default; what cannot be filled or has no place is an error."""
    stored = CODEC.encode([Depths(1.5), Open(a=1)])

    def read_as(*fields: Any, **of_open: Any) -> Any:
        depths = dataclasses.make_dataclass("Depths", fields)
        other = pydantic.create_model("Open", **of_open)
        return Codec(Path("/x"), [depths, other]).decode(stored)

    depths, other = read_as("mean", "of", ("more", int, 7), ("many", list, dataclasses.field(default_factory=list)),
                            a=(int, 0), b=(list, pydantic.Field(default_factory=list)))
    assert (depths.mean, depths.more, depths.many, other.a, other.b) == (1.5, 7, [], 1, [])
    for fields, of_open in (
        (("mean",), {"a": (int, 0)}), (("mean", "of", "more"), {"a": (int, 0)}),
        (("mean", "of"), {"b": (int, 0)}), (("mean", "of"), {"a": (int, 0), "b": (int, ...)}),
    ):
        with pytest.raises(ValueError, match="field"):
            read_as(*fields, **of_open)


def test_a_type_that_is_not_registered_any_more_is_a_restore_error(tmp_path, clock):
    """G18: no failure is counted, and the step does not run again."""
    def opened(*types: type) -> Database:
        return Database(tmp_path / "state.duckdb", root=tmp_path, clock=clock, types=types, pulse_seconds=None)

    with opened(Depths) as db:
        claim = start(db)
        assert claim.step("a", lambda: Depths(2.0)) == Depths(2.0)
        claim.release()
        db.spawn("job", Depths(1.0), id="u", priority=-1)
    with opened() as db:
        with pytest.raises(RestoreError, match="Depths is not registered"):
            claimed(db).step("a", lambda: pytest.fail("it ran again"))
        with pytest.raises(RestoreError):
            _ = claimed(db).input
    with opened(Depths) as db:
        db.cancel("t")
        assert db.inspect("u").input == Depths(1.0)  # type: ignore[union-attr]
        assert db.store.sql(
            """SELECT value::JSON ->> '$."$object"[1].mean' FROM canard_absurd.task_checkpoints"""
        )[1] == [("2.0",)]
