"""Quality control: are the files whole, are they the files that were sent, and what is in them? One table at the end.

    canard-pipe run qc.py samples.csv

The sheet has the columns sample, fastq_1 and, if there are such, fastq_2, md5_1 and md5_2 (the sums that the sequencing
centre gave); several rows of a sample are its lanes. Wanted is fastp. A lane that is cut off, has another sum, or has
pairs that are none fails its sample by name; the others go on. Nothing is trimmed: the reads stay where they are.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canard_pipe import Escalate, InputFile, Pipeline, SampleRow

COLUMNS = ("reads", "bases", "q20_percent", "q30_percent", "gc_percent", "mean_length", "duplication_percent",
           "adapter_percent", "would_be_dropped_percent")  # fmt: skip
Check = Callable[[Path], str | None]


class Row(SampleRow):
    """One lane of a sample: one file of single reads, or two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None
    md5_1: str | None = None
    md5_2: str | None = None


# What fastp or a check says of a file, it says again: one try.
pipeline = Pipeline("qc", rows=Row, key="sample", tools=["fastp"], tries={"exit": 1, "output": 1})


@pipeline.sample
def check_lanes(sample: Any, ctx: Any) -> dict[str, dict[str, Any]]:
    """Look at every lane of one sample, and publish what fastp says of it under results/SAMPLE/."""
    several = len(sample.rows) > 1
    given = [(row, f"{sample.key}.{number}" if several else sample.key) for number, row in enumerate(sample.rows, 1)]
    reports = ctx.map("lane", check_lane, given, key=lambda lane: lane[1])
    ctx.publish({file.name: file for json_file, html in reports for file in (json_file, html)})
    return {lane: numbers_of(json_file) for (_, lane), (json_file, _) in zip(given, reports, strict=True)}


@pipeline.cohort(after=check_lanes, allow_missing=True)
def cohort(results: Any, ctx: Any) -> None:
    """Put the numbers of all lanes into one table; samples that could not be looked at stand there by name."""
    rows = [{"sample": sample, "lane": lane} | row for sample, lanes in results.items() for lane, row in lanes.items()]
    rows += [{"sample": sample, "note": "failed: see canard-pipe why"} for sample in results.missing]
    table = ctx.step("table", lambda: ctx.call(write_table, rows, outputs=["qc.tsv"]))
    ctx.publish({"qc.tsv": table})


def check_lane(given: tuple[Row, str], ctx: Any) -> tuple[Path, Path]:
    """Compare the sums, count the reads of both files, and let fastp look at them; return its JSON and its HTML."""
    row, lane = given
    sums = [(md5, file) for md5, file in zip((row.md5_1, row.md5_2), row.reads, strict=False) if md5]
    if sums:
        ctx.step("md5", compare_sums, sums, ctx)
    # fastp takes half a file for a whole one and the shorter of two for both, so the lines are counted, too.
    options = [word for pair in zip(("-i", "-I"), row.reads, strict=False) for word in pair]
    folder = ctx.step("fastp", lambda: ctx.shell(
        """
        for reads in {reads}; do gzip -cdf "$reads" | wc -l >> lines.txt; done
        fastp -w 1 {options} -j {lane}.fastp.json -h {lane}.fastp.html
        """,
        reads=[*row.reads], options=options, lane=lane, outputs=[f"{lane}.fastp.json", f"{lane}.fastp.html"],
        check=saw_all_reads(lane), memory=Escalate("2G", max="8G"), time="12h",
    ))  # fmt: skip
    return folder / f"{lane}.fastp.json", folder / f"{lane}.fastp.html"


def compare_sums(sums: list[tuple[str, Path]], ctx: Any) -> None:
    """Fail if a file has another md5 sum than the sheet says."""

    def as_sent(folder: Path) -> str | None:
        found = [line.lstrip("\\").split()[0] for line in (folder / "md5.txt").read_text().splitlines()]
        wrong = [
            f"{file} has the md5 sum {have}, and the sheet says {want}"
            for have, (want, file) in zip(found, sums, strict=True) if have != want.strip().lower()
        ]
        return "; ".join(wrong) or None

    ctx.process(["md5sum", *(file for _, file in sums)], stdout="md5.txt", outputs=["md5.txt"], check=as_sent)


def saw_all_reads(lane: str) -> Check:
    """Return a check that both files of a lane have as many reads, and that fastp has seen all of them."""

    def check(folder: Path) -> str | None:
        lines = [int(line) for line in (folder / "lines.txt").read_text().split()]
        if len(set(lines)) > 1:
            return f"the two files have {lines[0] // 4} and {lines[1] // 4} reads: they are no pairs"
        if any(count % 4 for count in lines):
            return f"a file has {lines[0]} lines, which is no whole number of reads"
        seen = before(folder / f"{lane}.fastp.json")["total_reads"]
        return None if 4 * seen == sum(lines) else f"fastp saw {seen} of {sum(lines) // 4} reads"

    return check


def before(file: Path) -> dict[str, Any]:
    """Return what fastp says of the reads as they came."""
    found: dict[str, Any] = json.loads(file.read_text())["summary"]["before_filtering"]
    return found


def numbers_of(file: Path) -> dict[str, Any]:
    """Return one row of the table."""
    report, reads = json.loads(file.read_text()), before(file)
    total, bases = reads["total_reads"], reads["total_bases"]
    passed = report["filtering_result"]["passed_filter_reads"]
    lengths = [str(reads[name]) for name in ("read1_mean_length", "read2_mean_length") if name in reads]
    adapters = report.get("adapter_cutting", {}).get("adapter_trimmed_reads", 0)
    values = (
        total, bases, _percent(reads["q20_bases"], bases), _percent(reads["q30_bases"], bases),
        round(100 * reads["gc_content"], 2), "/".join(lengths), round(100 * report["duplication"]["rate"], 2),
        _percent(adapters, total), _percent(total - passed, total),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def write_table(rows: list[Mapping[str, Any]]) -> Path:
    """Write the table, in a process of its own and in the folder of its try."""
    columns = ("sample", "lane", *COLUMNS, "note")
    with Path("qc.tsv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, restval="", delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return Path("qc.tsv")
