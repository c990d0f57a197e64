"""RNA-seq: transcripts counted by salmon for each sample, and one table of all.

    canard-pipe run rnaseq.py samples.csv --param transcripts=cdna.fa.gz

The sheet has the columns sample, fastq_1 and, for pairs, fastq_2; several rows of a sample are its lanes. Wanted is
salmon. A sample of which hardly anything maps is left out with that as its reason. Copy this file and change it.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from canard_pipe import Escalate, InputError, InputFile, Pipeline, SampleRow, SampleSkipped


class Row(SampleRow):
    """One lane of a sample: one file of single reads, or two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None


pipeline = Pipeline(
    "rnaseq",
    rows=Row,
    key="sample",
    params={"transcripts": InputFile, "min_percent_mapped": (float, 5.0)},
    tools=["salmon"],
)


@pipeline.once
def index(params: Any, ctx: Any) -> Path:
    """Index the transcripts, once for all samples."""
    return ctx.step("index", index_transcripts, params.transcripts, ctx)


@pipeline.sample
def quantify(sample: Any, ctx: Any) -> Path:
    """Count one sample's fragments by transcript, all lanes together, and publish what salmon made."""
    pairs = {row.fastq_2 is not None for row in sample.rows}
    if len(pairs) > 1:
        raise InputError(f"sample {sample.key}: some of its lanes are pairs and some are single reads")
    counts = ctx.step("quantify", count, sample, ctx.result_of(index), ctx)
    percent = ctx.step("percent-mapped", percent_mapped, counts)
    if percent < ctx.params.min_percent_mapped:
        raise SampleSkipped(f"{percent:.1f} % of the fragments map, {ctx.params.min_percent_mapped:g} % needed")
    ctx.publish({sample.key: counts})
    return counts / "quant.sf"


@pipeline.cohort(after=quantify)
def table(results: Any, ctx: Any) -> None:
    """Publish one table: a row for each transcript, a column for each sample."""
    ctx.publish({"counts.tsv": ctx.step("table", lambda: ctx.call(write_table, dict(results)))})


def index_transcripts(fasta: Path, ctx: Any) -> Path:
    """Make salmon's index. It is a folder: what a killed try leaves of one is never taken for whole."""
    out = ctx.process(
        ["salmon", "index", "-p", "2", "-k", "31", "-t", fasta, "-i", "index"],
        outputs=["index"],
        cpus=2,
        memory=Escalate("2G", max="32G"),
        time="12h",
    )
    return out / "index"


def count(sample: Any, transcripts: Path, ctx: Any) -> Path:
    """Count fragments. salmon takes the files of several lanes itself, the two lists in the same order."""
    first = [row.fastq_1 for row in sample.rows]
    second = [row.fastq_2 for row in sample.rows if row.fastq_2 is not None]
    reads = ["-1", *first, "-2", *second] if second else ["-r", *first]
    out = ctx.process(
        ["salmon", "quant", "-p", "2", "-i", transcripts, "-l", "A", *reads, "--validateMappings", "-o", "quant"],
        outputs=["quant", "quant/quant.sf", "quant/aux_info/meta_info.json"],
        cpus=2,
        memory=Escalate("2G", max="32G"),
        time="12h",
    )
    return out / "quant"


def percent_mapped(counts: Path) -> float:
    """Return what part of a sample's fragments salmon has mapped, in percent."""
    return float(json.loads((counts / "aux_info" / "meta_info.json").read_text())["percent_mapped"])


def write_table(quantified: dict[str, Path]) -> Path:
    """Write the table into the current folder, that of the try. All samples were counted with one index."""
    columns: dict[str, dict[str, str]] = {}
    for name, file in quantified.items():
        with file.open(encoding="utf-8", newline="") as opened:
            columns[name] = {row["Name"]: row["NumReads"] for row in csv.DictReader(opened, delimiter="\t")}
    names = list(next(iter(columns.values()), {}))
    made = Path("counts.tsv")
    with made.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, delimiter="\t", lineterminator="\n")
        writer.writerow(["transcript", *columns])
        writer.writerows([name, *(column[name] for column in columns.values())] for name in names)
    return made
