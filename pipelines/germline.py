"""Germline variants: from short reads to one VCF of the whole cohort.

    canard-pipe run germline.py samples.csv --param reference=genome.fa

The sheet has the columns sample, fastq_1 and, for pairs, fastq_2; several rows of a sample are its lanes. Wanted are
bwa, samtools and bcftools. Copy this file and change it: it is meant as a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canard_pipe import Escalate, InputFile, Pipeline, SampleRow


class Row(SampleRow):
    """One lane of a sample: one file of single reads, or two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None


pipeline = Pipeline(
    "germline",
    rows=Row,
    key="sample",
    params={"reference": InputFile},
    tools=["bwa", "samtools", "bcftools"],
)


@pipeline.once
def reference(params: Any, ctx: Any) -> Path:
    """Index the reference, once for all samples."""
    return ctx.step("index", index_reference, params.reference, ctx)


@pipeline.sample
def call_variants(sample: Any, ctx: Any) -> Path:
    """Take one sample from its reads to its variants, and publish them under results/SAMPLE/."""
    name, genome = sample.key, ctx.result_of(reference)
    # An item for each lane: the row and the name of its read group.
    several = len(sample.rows) > 1
    given = [(row, f"{name}.{number}" if several else name) for number, row in enumerate(sample.rows, start=1)]
    lanes = ctx.map("align", align, given, key=lambda lane: lane[1])
    bam = lanes[0] if len(lanes) == 1 else ctx.step("merge-lanes", merge_lanes, lanes, name, ctx)
    bai = ctx.step("index", index_alignment, bam, ctx)
    flagstat = ctx.step("flagstat", count_flags, bam, name, ctx)
    vcf = ctx.step("call", call, bam, name, genome, ctx)
    ctx.publish(
        {
            f"{name}.bam": bam,
            f"{name}.bam.bai": bai,
            f"{name}.flagstat.json": flagstat,
            f"{name}.vcf.gz": vcf,
            f"{name}.vcf.gz.tbi": index_of(vcf),
        }
    )
    return vcf


@pipeline.cohort(after=call_variants)
def cohort(results: Mapping[str, Path], ctx: Any) -> None:
    """Merge the variants of all samples, in the order of the sheet, and publish them under results/cohort/."""
    merged = ctx.step("merge", merge_calls, list(results.values()), ctx)
    ctx.publish({"merged.vcf.gz": merged, "merged.vcf.gz.tbi": index_of(merged)})


def index_reference(fasta: Path, ctx: Any) -> Path:
    """Copy the reference into the try's folder, since the indices lie beside it; gzip -cdf also takes plain text."""
    out = ctx.shell(
        """
        gzip -cdf {fasta} > genome.fa
        bwa index genome.fa
        samtools faidx genome.fa
        """,
        fasta=fasta,
        outputs=["genome.fa", "genome.fa.fai", *(f"genome.fa.{end}" for end in ("amb", "ann", "bwt", "pac", "sa"))],
        memory=Escalate("2G", max="16G"),
        time="6h",
    )
    return out / "genome.fa"


def align(given: tuple[Row, str], ctx: Any) -> Path:
    """Align the reads of one lane and sort them by position; lanes are aligned side by side, as cpus allow."""
    row, lane = given
    genome = ctx.result_of(reference)
    out = ctx.pipe(
        # -K: without it the batches grow with the threads, and the alignments change with them. bwa itself turns
        # the \t of the read group into tabs. SM is the name of the sample in the VCF.
        ["bwa", "mem", "-t", "2", "-K", "10000000", "-R", rf"@RG\tID:{lane}\tSM:{row.sample}\tPL:ILLUMINA",
         genome, *row.reads],
        ["samtools", "sort", "-o", f"{lane}.bam", "-"],
        outputs=[f"{lane}.bam"],
        cpus=2,
        memory=Escalate("2G", max="32G"),
        time="24h",
    )
    return out / f"{lane}.bam"


def merge_lanes(lanes: list[Path], sample: str, ctx: Any) -> Path:
    """Merge the sorted alignments of a sample's lanes; each keeps its read group."""
    out = ctx.process(["samtools", "merge", "-o", f"{sample}.bam", *lanes], outputs=[f"{sample}.bam"], time="6h")
    return out / f"{sample}.bam"


def index_alignment(bam: Path, ctx: Any) -> Path:
    """Index the alignments. The index gets a name of its own here, since the BAM's folder is another try's."""
    out = ctx.process(["samtools", "index", bam, f"{bam.name}.bai"], outputs=[f"{bam.name}.bai"])
    return out / f"{bam.name}.bai"


def count_flags(bam: Path, sample: str, ctx: Any) -> Path:
    """Count mapped, paired and other reads. That the JSON can be read is checked: a full disk leaves flagstat at 0."""
    out = ctx.process(
        ["samtools", "flagstat", "-O", "json", bam],
        stdout=f"{sample}.flagstat.json",
        outputs=[f"{sample}.flagstat.json"],
    )
    return out / f"{sample}.flagstat.json"


def call(bam: Path, sample: str, genome: Path, ctx: Any) -> Path:
    """Call the sample's variants. The index is made in the same try: bcftools merge looks for it beside the VCF."""
    vcf = f"{sample}.vcf.gz"
    out = ctx.shell(
        """
        bcftools mpileup -f {genome} {bam} -Ou | bcftools call -mv -Oz -o {vcf}
        bcftools index -t {vcf}
        """,
        genome=genome,
        bam=bam,
        vcf=vcf,
        outputs=[vcf, f"{vcf}.tbi"],
        memory=Escalate("1G", max="8G"),
        time="24h",
    )
    return out / vcf


def merge_calls(calls: list[Path], ctx: Any) -> Path:
    """Merge the VCFs of all samples into one."""
    # bcftools merge refuses a single file, and a sheet may have one sample.
    command = "merge" if len(calls) > 1 else "view"
    out = ctx.shell(
        """
        bcftools {command} -Oz -o merged.vcf.gz {calls}
        bcftools index -t merged.vcf.gz
        """,
        command=command,
        calls=calls,
        outputs=["merged.vcf.gz", "merged.vcf.gz.tbi"],
        memory=Escalate("2G", max="16G"),
        time="6h",
    )
    return out / "merged.vcf.gz"


def index_of(vcf: Path) -> Path:
    """Return the index that lies beside a VCF."""
    return vcf.with_name(f"{vcf.name}.tbi")
