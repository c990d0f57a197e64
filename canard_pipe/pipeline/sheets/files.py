"""The files that a sheet names: found, and checked as far as that is cheap."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.execution.endings import BGZF_END
from canard_pipe.pipeline.rows import FileCheck, InputFile
from canard_pipe.pipeline.sheets.words import closest, quoted

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GZIP = b"\x1f\x8b\x08"
_HEAD = 512
_SEARCHES = 20
_NAMES_SEARCHED = 5_000

Trouble = tuple[str, str]
"""What is wrong with a file, and the way out."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What one look at a path told. ``identity`` is equal for equal files, also through links."""

    trouble: Trouble | None = None
    identity: object = None
    empty: bool = False
    without_end: bool = False


class InputFiles:
    """Finds the files of one sheet; looks at each path once however often it is named.

    Relative paths start at ``folder``. ``~`` and ``$NAME`` are expanded only with ``expand``.
    """

    def __init__(self, folder: Path, *, expand: bool = False) -> None:
        self.folder, self.expand = folder, expand
        self._found: dict[tuple[str, bool], tuple[InputFile, _Found]] = {}
        self._searches = _SEARCHES

    def resolve(self, text: str, check: FileCheck) -> tuple[InputFile, Trouble | None]:
        """Give the absolute path for the text of a cell and what is wrong with the file there."""
        trouble = self._refuse_text(text)
        if trouble is not None:
            return InputFile(self.folder), trouble
        path, found = self._look(text, check.folder)
        return path, _judge(path, found, check)

    def identity(self, text: str, *, folder: bool = False) -> object:
        """Give what is equal for equal files; None for a file that cannot be used."""
        if self._refuse_text(text) is not None:
            return None
        found = self._look(text, folder)[1]
        return None if found.trouble else found.identity

    def _look(self, text: str, folder: bool) -> tuple[InputFile, _Found]:
        known = self._found.get((text, folder))
        if known is None:
            name = Path(os.path.expandvars(text)).expanduser() if self.expand else text
            path = _without_dots(InputFile(self.folder, name))
            try:
                found = _look(path, folder)
            except OSError as error:
                found = _Found(trouble=self._missing(path, error))
            known = self._found[(text, folder)] = (path, found)
        return known

    def _refuse_text(self, text: str) -> Trouble | None:
        if _URL.match(text):
            return (
                f"{quoted(text)} is an address, not a file",
                "declare the column as str and let a step of the pipeline fetch it",
            )
        try:
            if b"\0" in os.fsencode(text):
                return f"{quoted(text)} is no path: it holds NUL", ""
        except UnicodeEncodeError:
            return f"{quoted(text)} is no path: it holds half a character", ""
        if self.expand and "$" in os.path.expandvars(text):
            return f"{quoted(text)} names a variable that is not set", ""
        return None

    def _missing(self, path: Path, error: OSError) -> Trouble:
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"cannot be read, permission denied: {path}", "chmod +r it, and +x the folders above"
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return f"cannot be read, {error.strerror}: {path}", ""
        if path.is_symlink():
            return f"the link leads nowhere: {path} points to {path.readlink()}", "mend the link"
        return f"there is no such file: {path}", self._search(path)

    def _search(self, path: Path) -> str:
        """Give the hint for a missing file; only the first few are looked for, folders can be large."""
        self._searches -= 1
        if self._searches < 0:
            return ""
        if path.name.startswith("~") or "/~" in str(path) or "$" in path.name:
            return "~ and $NAME are taken as they are; write the whole path"
        folder = path.parent
        if not folder.is_dir():
            while not folder.is_dir():
                path, folder = folder, folder.parent
            return f"there is no folder {path.name} in {folder}; relative paths start at {self.folder}"
        try:
            names = [entry.name for entry in itertools.islice(os.scandir(folder), _NAMES_SEARCHED)]
        except OSError:
            names = []
        near = closest(path.name, names, cutoff=0.85)
        return f"did you mean {quoted(near)}?" if near else f"relative paths start at {self.folder}"


def checksum_trouble(path: Path, expected: str) -> Trouble | None:
    """Read the whole file and compare its MD5 (32 hex digits) or SHA-256 (64); None when it is equal."""
    wanted = expected.strip().lower()
    name = {32: "md5", 64: "sha256"}.get(len(wanted))
    if name is None or re.fullmatch(r"[0-9a-f]+", wanted) is None:
        return f"{quoted(expected)} is neither an MD5 nor a SHA-256", ""
    with path.open("rb") as file:
        # A checksum that came with the data, not a safeguard against an attacker.
        actual = hashlib.file_digest(file, lambda: hashlib.new(name, usedforsecurity=False)).hexdigest()
    if actual == wanted:
        return None
    return f"the {name} of {path} is {actual}, not {wanted}", "copy the file again"


def _without_dots(path: InputFile) -> InputFile:
    """Take ``..`` out where the shorter path is the same file, which it is not behind a link to a folder."""
    if ".." not in path.parts:
        return path
    plain = InputFile(os.path.normpath(path))
    try:
        return plain if plain.parent.samefile(path.parent) else path
    except OSError:
        return path


def _look(path: Path, folder: bool) -> _Found:
    """Look at a path with stat and, for a regular file, at its first and last bytes. Raises OSError."""
    facts = path.stat()
    identity = (facts.st_dev, facts.st_ino) if facts.st_ino else os.path.realpath(path)
    if stat.S_ISDIR(facts.st_mode) or folder:
        if not folder:
            return _Found((f"is a folder, not a file: {path}", "name the file in it"))
        if not stat.S_ISDIR(facts.st_mode):
            return _Found((f"is no folder: {path}", "name a folder"))
        return _Found(identity=identity, empty=next(path.iterdir(), None) is None)
    if not stat.S_ISREG(facts.st_mode):
        return _Found((f"is no regular file: {path}", "a pipe or device cannot be read twice; save it to a file"))
    # For root everything is readable; a file that nobody may read is refused all the same, since jobs of
    # another user, or root across NFS, would fail on it.
    if not facts.st_mode & 0o444:
        return _Found((f"nobody may read it (mode {stat.S_IMODE(facts.st_mode):03o}): {path}", "chmod +r it"))
    with path.open("rb", buffering=0) as file:
        return _from_content(file.fileno(), facts.st_size, identity)


def _from_content(file: int, size: int, identity: object) -> _Found:
    if size == 0:
        return _Found(identity=identity, empty=True)
    head = os.pread(file, _HEAD, 0)
    without_end = _is_bgzf(head) and os.pread(file, len(BGZF_END), max(0, size - len(BGZF_END))) != BGZF_END
    empty = size <= _HEAD and head.startswith(_GZIP) and not without_end and _unpacks_to_nothing(head)
    return _Found(identity=identity, empty=empty, without_end=without_end)


def _is_bgzf(head: bytes) -> bool:
    """Tell whether a gzip member has the extra field BC, as SAM's specification wants it in BGZF."""
    return head[:4] == b"\x1f\x8b\x08\x04" and head[12:16] == b"BC\x02\x00"


def _unpacks_to_nothing(data: bytes) -> bool:
    """Tell whether small gzip content is whole and holds not one byte."""
    while data.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            if member.decompress(data, 1) or not member.eof:
                return False
        except zlib.error:
            return False
        data = member.unused_data
    return True


def _judge(path: Path, found: _Found, check: FileCheck) -> Trouble | None:
    """Say what is wrong with a file by what the row model wants of it."""
    if check.suffixes and not path.name.lower().endswith(tuple(suffix.lower() for suffix in check.suffixes)):
        return f"{quoted(path.name)} does not end in {' or '.join(check.suffixes)}", "is it the right file?"
    if found.trouble is not None:
        return found.trouble
    if found.empty and not check.may_be_empty:
        return f"the {'folder' if check.folder else 'file'} is empty: {path}", "make or copy it again"
    if found.without_end and check.end_mark:
        return f"the file is cut: it is BGZF, but its end mark is not there: {path}", "make or copy it again"
    for suffix in check.beside:
        if not (Path(f"{path}{suffix}").is_file() or path.with_suffix(suffix).is_file()):
            return f"there is no {suffix} beside the file: {path}", _index_hint(suffix)
    return None


def _index_hint(suffix: str) -> str:
    tools = {".bai": "samtools index", ".crai": "samtools index", ".csi": "bcftools index", ".tbi": "tabix",
             ".fai": "samtools faidx"}
    return f"make it: {tools[suffix]} FILE" if suffix in tools else ""


def same_files(named: Iterable[tuple[int, str, object]]) -> list[tuple[int, str, int, str]]:
    """Give (line, column, earlier line, its column) for each file that is named again.

    ``named`` is (line, column, identity) in the order of the sheet.
    """
    first: dict[object, tuple[int, str]] = {}
    again = []
    for line, column, identity in named:
        if identity in first:
            again.append((line, column, *first[identity]))
        else:
            first[identity] = (line, column)
    return again
