"""From the bytes of a sheet to its text."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePath

from canard_pipe.errors import Problem, SheetError
from canard_pipe.pipeline.sheets.words import quoted

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins in the same way
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_EXCEL = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
_ZIP, _OLE, _GZIP = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b"
_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class Source:
    """A sheet as text: its name as the user typed it, folder, suffix (``.csv``), text with ``\\n`` line ends.

    ``digest`` is the SHA-256 of the bytes as they were read (for ``x.csv.gz`` of the packed ones).
    """

    name: str
    folder: Path
    suffix: str
    text: str
    digest: str

    @property
    def path(self) -> Path:
        """The sheet's own path; for standard input the name ``-``."""
        return Path(self.name)


def read_source(path: str | PurePath, encoding: str | None) -> Source:
    """Read and decode a sheet; ``-`` is standard input, ``.gz`` and gzip content are unpacked.

    UTF-8 with or without a byte-order mark, UTF-16 with one, or ``encoding`` where it is given.
    Raises SheetError: not there, an Excel file, bytes that are not of the encoding (each line of them).
    """
    name = str(path)
    packed = _read(name)
    suffixes = [suffix.lower() for suffix in PurePath(name).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    data = _unpack(name, packed)
    _refuse_other_kinds(name, suffix, data)
    text = io.StringIO(_decode(name, data, encoding).lstrip("\ufeff"), newline=None).read()
    _refuse_nul(name, text)
    return Source(name, sheet_folder(name), suffix, text, hashlib.sha256(packed).hexdigest())


def sheet_folder(name: str) -> Path:
    """Give the folder that relative paths start from: the sheet's, or the current one for a stream."""
    if name == "-" or (not Path(name).is_file() and not Path(name).is_dir()):
        return Path.cwd()
    return Path(name).absolute().parent


def refuse(name: str, message: str, hint: str = "", line: int | None = None) -> SheetError:
    """Make the error for a sheet that cannot be read any further."""
    return SheetError([Problem(name, line, None, message, hint)])


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        raise refuse(name, "there is no such sheet", f"looked in {Path(name).absolute().parent}") from error
    except IsADirectoryError as error:
        raise refuse(name, "is a folder, not a sheet") from error
    except OSError as error:
        raise refuse(name, f"cannot be read: {error.strerror}") from error


def _unpack(name: str, data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise refuse(name, f"is compressed with gzip, but damaged: {error}", "copy or compress it again") from error


def _refuse_other_kinds(name: str, suffix: str, data: bytes) -> None:
    if suffix in _EXCEL or data.startswith((_ZIP, _OLE)):
        kind = suffix or "a workbook"
        raise refuse(
            name, f"{kind} given: save as CSV",
            "in Excel: Save As, CSV UTF-8; or let the pipeline give its own reader (docs/sheets.md)",
        )
    if suffix in (".yaml", ".yml"):
        raise refuse(
            name, f"{suffix} given: YAML and PEP projects are not read; save as CSV",
            "give the table that sample_table names, or let the pipeline give its own reader (docs/sheets.md)",
        )


def _decode(name: str, data: bytes, encoding: str | None) -> str:
    marked = next((kind for mark, kind in _MARKS if data.startswith(mark)), None)
    if marked == "utf-32":
        raise refuse(name, "is encoded as UTF-32", "save it as CSV UTF-8")
    if encoding is None:
        encoding = marked or "utf-8"
    try:
        return data.decode(encoding)
    except LookupError as error:
        raise refuse(name, f"unknown encoding {quoted(encoding)}", "such as utf-8, utf-16, latin-1") from error
    except UnicodeDecodeError as error:
        raise SheetError(_undecodable(name, data, encoding)) from error


def _undecodable(name: str, data: bytes, encoding: str) -> list[Problem]:
    """Name the lines whose bytes are not of the encoding, the first ones of them."""
    hint = "save it as CSV UTF-8, or say how it is encoded, such as --encoding latin-1"
    if encoding.lower().replace("-", "").replace("_", "").startswith("utf16"):
        return [Problem(name, None, None, f"is not {encoding} all through", hint)]
    problems = []
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", data), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            character = len(line[: error.start].decode(encoding)) + 1
            problems.append(
                Problem(
                    name, number, None,
                    f"character {character} of the line (byte 0x{line[error.start]:02X}) is not {encoding.upper()}",
                    hint,
                )
            )
        if len(problems) == _SHOWN_LINES:
            break
    return problems


def _refuse_nul(name: str, text: str) -> None:
    place = text.find("\0")
    if place >= 0:
        line = text.count("\n", 0, place) + 1
        character = place - text.rfind("\n", 0, place)
        raise refuse(
            name, f"character {character} of the line is NUL: this is no text, or UTF-16 without its mark",
            "save it as CSV UTF-8", line=line,
        )
