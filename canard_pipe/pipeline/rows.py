"""The row model: what users subclass to say which columns a sheet has and what they hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from canard_pipe.errors import PipelineFileError, Problem
from canard_pipe.execution.record import size_of

if TYPE_CHECKING:
    _NativePath = Path
else:
    # Python 3.11 picks the flavour of a path by its class, so a subclass must start from the native one.
    _NativePath = type(Path())

FILES = "files"
"""Name in the validation context under which the reader hands over its ``FileResolver``."""

_READS = re.compile(r"(fastq|fq|reads?)(_?\w*)?$", re.IGNORECASE)
_RESERVED = ("extra", "files", "input_bytes", "reads", "file_fields", "read_fields")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """How an input file is checked before anything runs: ``Annotated[InputFile, FileCheck(suffixes=(".bam",))]``.

    ``suffixes``: the name must end in one of them. ``may_be_empty``: a file without content is fine.
    ``end_mark``: a BGZF file (bgzip, BAM) must end with its end mark, which a cut copy has lost.
    ``shared``: several rows may name the same file. ``folder``: a folder is meant.
    ``beside``: suffixes of files that must lie beside it, appended or in place of the last suffix (``.bai``).
    """

    suffixes: tuple[str, ...] = ()
    may_be_empty: bool = False
    end_mark: bool = True
    shared: bool = False
    folder: bool = False
    beside: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not _holds_input_file(source):
            raise TypeError("FileCheck is for InputFile fields only")
        schema = _file_schema(self)
        return core_schema.nullable_schema(schema) if type(None) in get_args(source) else schema


class FileResolver(Protocol):
    """Turns the text of a cell into a file, checked. What is wrong comes as (message, hint)."""

    def resolve(self, text: str, check: FileCheck) -> tuple[InputFile, tuple[str, str] | None]: ...


class InputFile(_NativePath):
    """A path that was checked before the run. Everywhere else it is an ordinary ``pathlib.Path``.

    In a sheet a relative path starts at the sheet's own folder. It equals the plain ``Path`` of the same text,
    and a plain ``Path`` takes its place after a replay.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _file_schema(FileCheck())


def _file_schema(check: FileCheck) -> CoreSchema:
    def validate(value: Any, info: ValidationInfo) -> InputFile:
        files: FileResolver | None = (info.context or {}).get(FILES)
        if isinstance(value, Path):
            return value if isinstance(value, InputFile) else InputFile(value)
        if not isinstance(value, str):
            raise PydanticCustomError("input_file", "must be the path of a file")
        if files is None:
            return InputFile(value)
        path, problem = files.resolve(value, check)
        if problem is not None:
            raise PydanticCustomError("input_file", "{message}", {"message": problem[0], "hint": problem[1]})
        return path

    return core_schema.with_info_plain_validator_function(
        validate, serialization=core_schema.to_string_ser_schema(when_used="json")
    )


def _holds_input_file(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_holds_input_file(part) for part in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, InputFile)


def file_check(annotation: Any, metadata: tuple[Any, ...] | list[Any] = ()) -> FileCheck | None:
    """Tell how a field of this type checks its file; None when it holds no ``InputFile``."""
    if not _holds_input_file(annotation):
        return None
    found = [item for item in metadata if isinstance(item, FileCheck)]
    found += [item for part in _parts(annotation) for item in get_args(part)[1:] if isinstance(item, FileCheck)]
    return found[0] if found else FileCheck()


def _parts(annotation: Any) -> list[Any]:
    """Give the annotated types within ``annotation``, itself included."""
    if get_origin(annotation) is Annotated:
        return [annotation]
    return [part for inner in get_args(annotation) for part in _parts(inner)]


def may_be_none(annotation: Any) -> bool:
    """Tell whether a field of this type may be left empty."""
    return annotation is None or annotation is type(None) or any(map(may_be_none, _alternatives(annotation)))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[:1]
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()


def _file_of(model: type) -> str:
    """Name the file that a row model is defined in."""
    return getattr(sys.modules.get(model.__module__), "__file__", None) or model.__module__


class SampleRow(BaseModel):
    """One row of a sheet; subclass it and declare the columns (pydantic fields).

    ``extra`` holds the texts of the columns that the model does not know, by the name in the header.
    A cell that is empty is None where the field allows it, else the field's default, else a missing value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    file_fields: ClassVar[Mapping[str, FileCheck]] = {}
    read_fields: ClassVar[tuple[str, ...]] = ()

    extra: dict[str, str] = Field(default_factory=dict, repr=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        taken = [name for name in _RESERVED if name in cls.__annotations__]
        if taken:
            raise PipelineFileError(
                [
                    Problem(_file_of(cls), None, None, f"{cls.__name__}.{name} is taken by SampleRow",
                            f"name the field {name}_ and give it Field(alias={name!r})")
                    for name in taken
                ]
            )
        cls._find_files()

    @classmethod
    def complete(cls) -> None:
        """Look up types that were not known yet when the class was made.

        Raises PipelineFileError where they are not known now either.
        """
        if cls.__pydantic_complete__:
            return
        try:
            cls.model_rebuild()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            problem = Problem(_file_of(cls), None, None, f"a type in {cls.__name__} is not known: {error.message}",
                              "import it, or define it above the class")  # fmt: skip
            raise PipelineFileError([problem]) from error
        cls._find_files()

    @classmethod
    def _find_files(cls) -> None:
        checks = {name: file_check(field.annotation, field.metadata) for name, field in cls.model_fields.items()}
        cls.file_fields = {name: check for name, check in checks.items() if check is not None}
        cls.read_fields = tuple(name for name in cls.file_fields if _READS.match(name))

    @property
    def reads(self) -> list[Path]:
        """The read files that are there, in the order of the fields fastq…, fq… and read… of the model."""
        return [path for path in (getattr(self, name) for name in self.read_fields) if path is not None]

    @property
    def files(self) -> list[Path]:
        """All input files of the row that are there, in the order of the fields."""
        return [path for path in (getattr(self, name) for name in self.file_fields) if path is not None]

    @property
    def input_bytes(self) -> int:
        """The bytes of all input files of the row together, folders by their content; for ``memory=`` and ``time=``."""
        return sum(size_of(path) or 0 for path in self.files)


def column_fields(rows: type[SampleRow]) -> dict[str, FieldInfo]:
    """Give the fields that come from columns, in the order of the model."""
    return {name: field for name, field in rows.model_fields.items() if name != "extra"}
