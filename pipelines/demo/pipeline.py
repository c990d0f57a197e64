"""The demo: align the reads of four samples, call their variants, and compare these with what was planted.

Everything runs with pip packages alone: pybwa aligns, pysam brings samtools and bcftools. The data are made by
``make_data.py``. One failure is part of the demo, see :func:`call_variants`.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pysam

from canard_pipe import InputFile, Pipeline, SampleRow


class Row(SampleRow):
    """One row of the sheet: a pair of files. A sample with several rows has several lanes."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile


pipeline = Pipeline("demo", rows=Row, key="sample", params={"reference": InputFile, "truth": InputFile})


@pipeline.once
def reference(params: Any, ctx: Any) -> Path:
    """Index the reference once, for all samples."""
    index_files = [f"reference.fa{ending}" for ending in (".amb", ".ann", ".bwt", ".fai", ".pac", ".sa")]
    return ctx.step(
        "index",
        lambda: ctx.call(build_index, params.reference, outputs=["reference.fa", "reference.dict", *index_files]),
    )


@pipeline.sample
def sample_variants(sample: Any, ctx: Any) -> dict[str, Path]:
    """Take one sample from its reads to its variants. Each step is saved: a run that goes on does not repeat it."""
    bam, vcf = f"{sample.key}.bam", f"{sample.key}.vcf.gz"
    genome = ctx.result_of(reference)
    lanes = [(row.fastq_1, row.fastq_2) for row in sample.rows]
    aligned = ctx.step(
        "align", lambda: ctx.call(align, sample.key, lanes, genome, bam, outputs=[bam, f"{bam}.bai"], cpus=1)
    )
    called = ctx.step(
        "call", lambda: ctx.call(call_variants, sample.key, aligned, genome, vcf, outputs=[vcf, f"{vcf}.tbi"])
    )
    ctx.publish(
        {bam: aligned, f"{bam}.bai": beside(aligned, ".bai"), vcf: called, f"{vcf}.tbi": beside(called, ".tbi")}
    )
    return {"vcf": called}


@pipeline.cohort(after=sample_variants)
def cohort(results: Mapping[str, Any], ctx: Any) -> None:
    """Merge the variants of all samples, and compare them with the planted ones."""
    calls = {sample: result["vcf"] for sample, result in results.items()}
    merged = ctx.step(
        "merge", lambda: ctx.call(merge, list(calls.values()), outputs=["merged.vcf.gz", "merged.vcf.gz.tbi"])
    )
    summary = ctx.step("compare", lambda: ctx.call(compare, calls, ctx.params.truth, outputs=["summary.tsv"]))
    ctx.publish(
        {"merged.vcf.gz": merged, "merged.vcf.gz.tbi": beside(merged, ".tbi"), "summary.tsv": summary}
    )


# What follows runs in a Python process of its own, in the folder of its try: relative names lie there. pybwa is
# imported where it is used, since the run itself does not need it.


def build_index(fasta: Path) -> Path:
    """Copy the reference and index it for pybwa and for bcftools."""
    from pybwa import BwaIndex

    shutil.copyfile(fasta, "reference.fa")
    BwaIndex.index("reference.fa")
    pysam.faidx("reference.fa")
    return Path("reference.fa")


def align(sample: str, lanes: list[tuple[Path, Path]], genome: Path, bam: str) -> Path:
    """Align the read pairs of all lanes and write them sorted by position, with an index."""
    from pybwa import BwaMem, BwaMemOptions

    options = BwaMemOptions(interleaved_paired_end=True)
    with BwaMem(prefix=genome) as aligner:
        pairs = [read for lane in lanes for read in interleave(*lane)]
        alignments = aligner.align(pairs, options)
    header = alignments[0][0].header.to_dict()
    header["RG"] = [{"ID": sample, "SM": sample, "PL": "ILLUMINA"}]  # bcftools takes the sample's name from here
    with pysam.AlignmentFile("unsorted.bam", "wb", header=header) as unsorted:
        for first, second in zip(alignments[::2], alignments[1::2], strict=True):
            mark_pair(first, second)
            for record in [*first, *second]:
                record.set_tag("RG", sample)
                unsorted.write(record)
    pysam.sort("-o", bam, "unsorted.bam")
    pysam.index(bam)
    Path("unsorted.bam").unlink()
    return Path(bam)


def call_variants(sample: str, bam: Path, genome: Path, vcf: str) -> Path:
    """Call variants from one sample's alignments.

    The first try for the sample eider fails on purpose, so that you can see what canard-pipe does then: the sample
    is tried again, its alignment is kept, and the other samples do not notice. The folder of a try is
    ``attempt-N``, and it is the folder we are in.
    """
    if sample == "eider" and Path.cwd().name == "attempt-1":
        raise RuntimeError("this failure is part of the demo: the first try of eider fails, the second succeeds")
    from pysam import bcftools

    bcftools.mpileup("-f", str(genome), "-Ob", "-o", "pileup.bcf", str(bam), catch_stdout=False)
    bcftools.call("-mv", "-Oz", "-o", vcf, "pileup.bcf", catch_stdout=False)
    bcftools.index("-t", vcf, catch_stdout=False)
    Path("pileup.bcf").unlink()
    return Path(vcf)


def merge(calls: list[Path]) -> Path:
    """Merge the samples' variants into one file with a column for each sample."""
    from pysam import bcftools

    bcftools.merge("-Oz", "-o", "merged.vcf.gz", *map(str, calls), catch_stdout=False)
    bcftools.index("-t", "merged.vcf.gz", catch_stdout=False)
    return Path("merged.vcf.gz")


def compare(calls: dict[str, Path], truth: Path) -> Path:
    """Write a table: for each sample the variants planted, found of these, missed, and found where none was planted."""
    planted: dict[str, set[tuple[str, int, str, str]]] = {sample: set() for sample in calls}
    with truth.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["sample"] in planted:
                planted[row["sample"]].add((row["chrom"], int(row["pos"]), row["ref"], row["alt"]))
    summary = Path("summary.tsv")
    with summary.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["sample", "planted", "found", "missed", "unexpected"])
        for sample, vcf in calls.items():
            found = set(variants(vcf))
            there = planted[sample]
            table.writerow([sample, len(there), len(there & found), len(there - found), len(found - there)])
    return summary


def variants(vcf: Path) -> Iterator[tuple[str, int, str, str]]:
    """Yield the variants of a VCF file: contig, position from 1, reference base, other base."""
    with pysam.VariantFile(str(vcf)) as records:
        for record in records:
            for alt in record.alts or ():
                yield record.chrom, record.pos, record.ref or "", alt


def interleave(fastq_1: Path, fastq_2: Path) -> Iterator[pysam.FastxRecord]:
    """Yield the two reads of each pair one after the other, as pybwa wants them: both with the same name."""
    with pysam.FastxFile(str(fastq_1)) as first, pysam.FastxFile(str(fastq_2)) as second:
        for pair in zip(first, second, strict=True):
            for read in pair:
                name = (read.name or "").removesuffix("/1").removesuffix("/2")
                yield pysam.FastxRecord(name=name, sequence=read.sequence, quality=read.quality)


def mark_pair(first: list[pysam.AlignedSegment], second: list[pysam.AlignedSegment]) -> None:
    """Set the flags that pybwa 2.3 leaves out: which read of the pair it is, and whether the two fit together.

    bcftools does not count reads whose pair does not fit.
    """
    one, two = first[0], second[0]
    fits = (
        one.is_mapped
        and two.is_mapped
        and one.reference_id == two.reference_id
        and one.is_reverse != two.is_reverse
        and abs(one.template_length) <= 1000
    )
    for records, is_first in ((first, True), (second, False)):
        for record in records:
            record.is_read1, record.is_read2, record.is_proper_pair = is_first, not is_first, fits


def beside(path: Path, ending: str) -> Path:
    """Return the file with this additional ending that lies beside ``path``, such as its index."""
    return path.with_name(path.name + ending)
