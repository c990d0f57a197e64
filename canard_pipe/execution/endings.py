"""What the first and last bytes of a file tell: whether it was compressed as its name says, and written to its end.

No tool is needed. Plain gzip has no mark at its end: there only reading it tells.
"""

from __future__ import annotations

import os
from pathlib import Path

# The empty block that ends every whole BGZF file: BAM, BCF, .vcf.gz.
BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
CRAM_ENDS = {  # by major version; 1 and 2.0 have none
    2: bytes.fromhex("0b000000ffffffff0fe0454f460000000001000001000606010001000100"),
    3: bytes.fromhex("0f000000ffffffff0fe0454f4600000000010005bdd94f0001000606010001000100ee63014b"),
}
BGZF_NAMES = (".bam", ".bcf", ".vcf.gz", ".vcf.bgz", ".bgz", ".tbi", ".csi")
GZIP_NAMES = (".gz", ".crai")


def ends(path: Path, suffixes: tuple[str, ...]) -> bool:
    """Tell whether the name ends in one of these, whatever its case."""
    return path.name.casefold().endswith(suffixes)


def end_problem(path: Path) -> str | None:
    """Return what is wrong with the first and last bytes of a BGZF or CRAM file, as in "is cut off"; None if nothing,
    or if it is of another kind.

    A gzip file is taken for BGZF if it says so in its first header: then a missing end block means that it was cut.
    """
    with path.open("rb") as file:
        head = file.read(18)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        tail = file.read()
    if ends(path, (".cram",)):
        if head[:4] != b"CRAM":
            return "is not a CRAM file"
        end = CRAM_ENDS.get(head[4]) if head[4:6] != b"\x02\x00" else None
        return "is cut off: it has no CRAM end container" if end and not tail.endswith(end) else None
    says_bgzf = head[:4] == b"\x1f\x8b\x08\x04" and head[12:14] == b"BC"
    if not ends(path, BGZF_NAMES):
        cut = says_bgzf and ends(path, GZIP_NAMES) and not tail.endswith(BGZF_END)
        return "is cut off: it has no BGZF end block" if cut else None
    if not says_bgzf:
        if head[:2] != b"\x1f\x8b":
            # an uncompressed BCF is right, though rare
            return None if head[:3] == b"BCF" else "is not compressed as its name says"
        return "was compressed with gzip, not with bgzip, so nothing can index it"
    return None if tail.endswith(BGZF_END) else "is cut off: it has no BGZF end block"
