"""Is a file whole? What its ending tells, what reading it to the end tells, and whether htslib can open it.

Exit code 0 does not mean that a file is whole: several tools end with 0 on a full disk or on cut input. No check
here needs a tool. What parses a file is meant to run in a child process (:mod:`canard_pipe.pipeline.checker`), since
a crash in a parser must not end the run. A right result may be empty, such as a VCF without records: "no records"
is never a problem, 0 bytes is.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.execution import endings
from canard_pipe.execution.endings import BGZF_NAMES, GZIP_NAMES, ends

_CHUNK = 256 * 1024  # small: each member of BGZF copies what is left of it
_ALIGNMENTS = (".bam", ".cram", ".sam")
_VARIANTS = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
_READS = (".fastq", ".fq", ".fastq.gz", ".fq.gz")
_INDEXES = ((".bam", (".bai", ".csi")), (".cram", (".crai",)), (".vcf.gz", (".tbi", ".csi")), (".bcf", (".csi",)))
# An index written together with its file (samtools sort --write-index) is closed a moment before it.
_INDEX_SLACK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found: ``problems`` make the file unusable, ``notes`` only want to be said."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _nothing() -> None:
    return


def check_output(path: Path, keep_going: Callable[[], None] = _nothing) -> list[str]:
    """Return what is wrong with a result: the quick checks, then those that read or parse it.

    ``keep_going`` is called again and again during long reading and may raise.
    """
    return quick_problems(path) or _deep_problems(path, keep_going)


def check_input(path: Path, keep_going: Callable[[], None] = _nothing) -> Findings:
    """Return what is wrong with an input file: a gzip file is read to its end, htslib's formats are opened.

    Reads that are none at all (an empty fastq file) are a note, since tools differ in what they make of them.
    """
    problem = _not_a_file(path)
    if problem is not None:
        return Findings((problem,))
    if path.stat().st_size == 0:
        text = f"{path} is empty (0 bytes)"
        return Findings(notes=(text,)) if ends(path, _READS) else Findings((text,))
    problem = end_problem(path)
    if problem is not None:
        return Findings((problem,))
    if ends(path, GZIP_NAMES) and not ends(path, BGZF_NAMES):
        reading = read_gzip(path, keep_going)
        if reading.problem is not None:
            return Findings((reading.problem,))
        if reading.size == 0:
            return Findings(notes=(f"{path} holds no reads" if ends(path, _READS) else f"{path} holds nothing",))
        return Findings()
    return Findings(tuple(_opened(path)))


def quick_problems(path: Path) -> list[str]:
    """Return what can be said of a result without parsing: there, a file or a folder with content, its end block."""
    if path.is_dir():
        with os.scandir(path) as entries:
            return [] if any(True for _ in entries) else [f"{path} is an empty folder"]
    problem = _not_a_file(path)
    if problem is None and path.stat().st_size == 0:
        problem = f"{path} is empty (0 bytes)"
    if problem is None:
        problem = end_problem(path)
    return [] if problem is None else [problem]


def needs_reading(path: Path) -> bool:
    """Tell whether :func:`check_output` would read or parse ``path`` after the quick checks."""
    return not path.is_dir() and ends(path, (*GZIP_NAMES, *_ALIGNMENTS, *_VARIANTS, ".json"))


def end_problem(path: Path) -> str | None:
    """Return what the first and last bytes of a BGZF or CRAM file tell against it (see execution/endings.py)."""
    problem = endings.end_problem(path)
    return None if problem is None else f"{path} {problem}"


@dataclass(frozen=True, slots=True)
class GzipReading:
    """A gzip file read to its end: ``size`` in bytes when decompressed, ``members``, and what is wrong."""

    size: int
    members: int
    problem: str | None


def read_gzip(path: Path, keep_going: Callable[[], None] = _nothing) -> GzipReading:
    """Read a gzip file to its end. Several members, BGZF and zeros after the last member are right (RFC 1952)."""
    size = members = 0
    offset = start = 0  # of what zlib gets next, and of the member that it is in
    inflate, begun, data = zlib.decompressobj(wbits=31), False, b""
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        while data or (data := file.read(_CHUNK)):
            keep_going()
            if not begun and members:
                bare = data.lstrip(b"\0")
                offset, data = offset + len(data) - len(bare), bare
                if not data:
                    continue
            if not begun:
                start, begun = offset, True
            try:
                size += len(inflate.decompress(data, 4 * _CHUNK))
            except zlib.error as error:
                return GzipReading(size, members, _damage(path, members, start, offset, error))
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            offset, data = offset + len(data) - len(rest), rest
            if inflate.eof:
                members, begun, inflate = members + 1, False, zlib.decompressobj(wbits=31)
    if begun:
        size += len(inflate.flush())  # zlib may hold back the last output
        if not inflate.eof:
            where = f"in the middle of the gzip member that begins at byte {start}"
            return GzipReading(size, members, f"{path} is cut off: it ends at byte {total}, {where}")
        members += 1
    return GzipReading(size, members, None)


def _damage(path: Path, members: int, start: int, offset: int, error: zlib.error) -> str:
    if "incorrect header" in str(error):
        if members == 0:
            return f"{path} is not a gzip file"
        return f"{path} has bytes after its end, from byte {start}, that are not gzip"
    return f"{path} is damaged near byte {offset}: {error}"


def _deep_problems(path: Path, keep_going: Callable[[], None]) -> list[str]:
    if not needs_reading(path):
        return []
    if ends(path, (".json",)):
        return _json_problems(path)
    if ends(path, GZIP_NAMES) and not ends(path, BGZF_NAMES):
        problem = read_gzip(path, keep_going).problem
        return [] if problem is None else [problem]
    return _opened(path) + _stale_index(path)


def _json_problems(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            json.load(file)
    except (ValueError, RecursionError) as error:
        return [f"{path} is not whole JSON: {error}"]
    return []


def _opened(path: Path) -> list[str]:
    """Return what htslib says when it opens an alignment or variant file and reads the header."""
    import pysam  # only here: it takes a while, and few runs of this module need it

    pysam.set_verbosity(0)
    try:
        if ends(path, _ALIGNMENTS):
            # An unaligned BAM has no sequences in its header and is right.
            with pysam.AlignmentFile(str(path), check_sq=False) as alignments:
                alignments.header.to_dict()
        elif ends(path, _VARIANTS):
            with pysam.VariantFile(str(path)) as variants:
                str(variants.header)
    except (OSError, ValueError) as error:
        return [f"{path} cannot be opened: {error}"]
    return []


def _stale_index(path: Path) -> list[str]:
    modified = path.stat().st_mtime_ns
    for suffix, index_suffixes in _INDEXES:
        if ends(path, (suffix,)):
            places = [path.with_name(path.name + index) for index in index_suffixes]
            places += [path.with_suffix(index) for index in index_suffixes if suffix in (".bam", ".cram")]
            return [
                f"{index} is older than {path.name}: it is the index of an earlier version"
                for index in places
                if index.is_file() and index.stat().st_mtime_ns < modified - _INDEX_SLACK_NS
            ]
    return []


def _not_a_file(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}" if path.is_symlink() or path.exists() else (
            f"{path} is not there"
        )
    if not stat.S_ISREG(mode):
        return f"{path} is not a regular file"
    return None if os.access(path, os.R_OK) else f"{path} cannot be read: no permission"
