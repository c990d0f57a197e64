"""Dataclasses and pydantic models as stored values, for types that were registered (see values.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from canard_pipe.errors import InputError, ValueEncodeError

T = TypeVar("T", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class Adapted:
    """A type that is stored as ``dump`` says and restored by ``load`` of the same: a dict of storable values."""

    kind: type
    dump: Callable[[Any], dict[str, Any]]
    load: Callable[[dict[str, Any]], Any]


class Registry:
    """The types of one database by the name under which they are stored: that of the class, without its module."""

    def __init__(self, types: Iterable[type | Adapted] = ()) -> None:
        self._by_name: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._adapted: dict[type, Adapted] = {}
        for kind in types:
            if isinstance(kind, Adapted):
                self._adapted[self.register(kind.kind)] = kind
            else:
                self.register(kind)

    def register(self, kind: T) -> T:
        """Let instances of exactly ``kind`` be stored; return it, so that this is a decorator too.

        Raises InputError unless it is a dataclass or a pydantic model, and for two types of one name.
        """
        if not isinstance(kind, type) or not (dataclasses.is_dataclass(kind) or _is_model(kind)):
            raise InputError(f"only dataclasses and pydantic models can be registered, not {kind!r}")
        name = kind.__name__
        if self._by_name.setdefault(name, kind) is not kind:
            raise InputError(f"another type named {name} is registered already")
        self._names[kind] = name
        return kind

    def name_of(self, kind: type) -> str | None:
        """Return the name of a registered type, or None."""
        return self._names.get(kind)

    def restore(self, name: str, fields: dict[str, Any], given: list[str] | None) -> Any:
        """Return an instance made of :meth:`fields_of`. Raises ValueError for what is not registered or has changed."""
        kind = self._by_name.get(name)
        if kind is None:
            raise ValueError(f"the type {name} is not registered")
        if kind in self._adapted:
            return self._adapted[kind].load(fields)
        return _restore_model(kind, fields, given) if _is_model(kind) else _restore_dataclass(kind, fields)


    def fields_of(self, value: Any, where: str) -> tuple[dict[str, Any], list[str] | None]:
        """Return the fields of an instance, and of a model also the names of those that were given."""
        adapted = self._adapted.get(type(value))
        return _fields_of(value, where) if adapted is None else (adapted.dump(value), None)


def _fields_of(value: Any, where: str) -> tuple[dict[str, Any], list[str] | None]:
    if not _is_model(type(value)):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, None
    if getattr(value, "__pydantic_private__", None):
        raise ValueEncodeError(f"private attributes of a {type(value).__name__} are not stored", where)
    return dict(value.__dict__) | (value.__pydantic_extra__ or {}), sorted(value.model_fields_set)


def _restore_dataclass(kind: type, stored: dict[str, Any]) -> Any:
    # Without its __init__: what __post_init__ made of the arguments is what was stored.
    value: Any = object.__new__(kind)
    for field in dataclasses.fields(kind):
        if field.name in stored:
            content = stored.pop(field.name)
        elif field.default is not dataclasses.MISSING:  # a field that the class did not have then
            content = field.default
        elif field.default_factory is not dataclasses.MISSING:
            content = field.default_factory()
        else:
            raise ValueError(f"the stored {kind.__name__} has no field {field.name}")
        object.__setattr__(value, field.name, content)
    if stored:
        raise ValueError(f"a {kind.__name__} has no field {min(stored)}")
    return value


def _restore_model(kind: Any, stored: dict[str, Any], given: list[str] | None) -> Any:
    fields = kind.model_fields
    missing = [name for name, field in fields.items() if name not in stored and field.is_required()]
    if missing:
        raise ValueError(f"the stored {kind.__name__} has no field {missing[0]}")
    unknown = stored.keys() - fields.keys()
    if unknown and kind.model_config.get("extra") != "allow":
        raise ValueError(f"a {kind.__name__} has no field {min(unknown)}")
    # Not validated again: a validator need not accept what it has made.
    value: Any = kind.model_construct(_fields_set=set(given or ()))
    state = {name: stored[name] if name in stored else field.get_default(call_default_factory=True)
             for name, field in fields.items()}
    object.__setattr__(value, "__dict__", state)
    object.__setattr__(value, "__pydantic_extra__",
                       {name: stored[name] for name in stored if name in unknown}
                       if kind.model_config.get("extra") == "allow" else None)
    return value


def _is_model(kind: type) -> bool:
    # By its marks, so that the engine does not import pydantic for those who do not use it.
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_construct")
