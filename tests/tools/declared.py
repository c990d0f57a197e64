"""Checks that a user would declare: each returns None, or what is wrong with the folder of a try."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

Check = Callable[[Path], "str | None"]
FRAGMENTS = 2400  # featureCounts 2.0 counts both ends with -p alone


def records_in(file: Path) -> int:
    """Count the reads of a fastq file, as far as they go."""
    try:
        with gzip.open(file) as reads:
            return sum(1 for _ in reads) // 4
    except EOFError:
        return -1


def mapped_all(*reads: Path) -> Check:
    """As many primary records as reads: what is lost on the way leaves no other trace."""

    def check(folder: Path) -> str | None:
        found = json.loads((folder / "flagstat.json").read_text())["QC-passed reads"]["primary"]
        wanted = sum(records_in(file) for file in reads)
        return None if found == wanted > 0 else f"{found} of {wanted} reads are in the BAM"

    return check


def fastp_saw_all(*reads: Path) -> Check:
    def check(folder: Path) -> str | None:
        found = json.loads((folder / "S.json").read_text())["summary"]["before_filtering"]["total_reads"]
        wanted = sum(records_in(file) for file in reads)
        return None if found == wanted > 0 else f"fastp saw {found} of {wanted} reads"

    return check


def something_counted(folder: Path) -> str | None:
    """The fragments that featureCounts saw, against those that were sequenced; and some of them in genes."""
    seen = sum(int(row.split("\t")[1]) for row in (folder / "counts.txt.summary").read_text().splitlines()[1:])
    counted = sum(int(row.split("\t")[6]) for row in (folder / "counts.txt").read_text().splitlines()[2:])
    if seen != FRAGMENTS:
        return f"featureCounts saw {seen} of {FRAGMENTS} fragments"
    return None if counted > 0 else "no fragment lies in a gene: do GTF and BAM name their contigs alike?"


def some_records(folder: Path) -> str | None:
    return None if int((folder / "count.txt").read_text()) > 0 else "no reads are in the BAM"


def contigs_agree(folder: Path) -> str | None:
    used = {line.split("\t")[0] for line in (folder / "sites.txt").read_text().splitlines()}
    return None if used else "no site was called: are BAM and reference of the same genome?"


def sites_on_both_contigs(folder: Path) -> str | None:
    used = {line.split("\t")[0] for line in (folder / "sites.txt").read_text().splitlines()}
    return None if used == {"chr1", "chr2"} else f"sites only on {sorted(used)}"
