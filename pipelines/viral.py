"""Viral consensus: from amplicon reads to a masked consensus of each sample and a table of all.

    canard-pipe run viral.py samples.csv --param reference=ref.fasta --param primers=primers.bed

The sheet has the columns sample, fastq_1 and fastq_2. Wanted are fastp, bwa, samtools and bcftools. A sample of which
hardly anything maps, such as a negative control, is left out with that as its reason. Copy this file and change it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pysam

from canard_pipe import Escalate, InputError, InputFile, Pipeline, SampleRow, SampleSkipped


class Row(SampleRow):
    """One sample: two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile


pipeline = Pipeline(
    "viral",
    rows=Row,
    key="sample",
    params={"reference": InputFile, "primers": InputFile, "min_mapped": (int, 100), "min_depth": (int, 10)},
    tools=["fastp", "bwa", "samtools", "bcftools"],
)


@pipeline.once
def reference(params: Any, ctx: Any) -> Path:
    """Check that the primers are of this genome, then index it."""
    ctx.step("check-primers", check_primers, params.reference, params.primers)
    return ctx.step("index", index_reference, params.reference, ctx)


@pipeline.sample
def assemble(sample: Any, ctx: Any) -> dict[str, Any]:
    """Make the consensus of one sample, publish it, and return its line of the table."""
    name, params, genome = sample.key, ctx.params, ctx.result_of(reference)
    trimmed = ctx.step("trim", trim, sample.row, ctx)
    mapped = ctx.step("map", align, trimmed, name, genome, ctx)
    flagstat = ctx.step("flagstat", count_flags, mapped, name, ctx)
    count = ctx.step("count-mapped", reads_mapped, flagstat)
    if count < params.min_mapped:
        raise SampleSkipped(f"{count} reads mapped, {params.min_mapped} needed")
    bam = ctx.step("clip-primers", clip_primers, mapped, name, params.primers, ctx)
    low = ctx.step("low-coverage", find_low_coverage, bam, params.min_depth, ctx)
    vcf = ctx.step("call", call, bam, name, genome, params.min_depth, ctx)
    consensus = ctx.step("consensus", apply_calls, vcf, low, name, genome, ctx)
    unknown, length = ctx.step("count-unknown", count_unknown, consensus)
    variants = ctx.step("count-variants", count_variants, vcf)
    ctx.publish(
        {
            f"{name}.bam": bam,
            f"{name}.flagstat.json": flagstat,
            f"{name}.vcf.gz": vcf,
            f"{name}.vcf.gz.tbi": vcf.with_name(f"{vcf.name}.tbi"),
            f"{name}.consensus.fa": consensus,
        }
    )
    return {"mapped": count, "variants": variants, "unknown": unknown, "length": length}


@pipeline.cohort(after=assemble)
def table(results: Any, ctx: Any) -> None:
    """Publish a table with a line for each sample of the sheet, those that were left out with the reason."""
    made = ctx.step("table", lambda: ctx.call(write_table, dict(results), results.skipped))
    ctx.publish({"samples.tsv": made})


def check_primers(reference: Path, primers: Path) -> None:
    """Refuse primers of another contig: samtools would clip nothing, and say nothing (exit status 0)."""
    with pysam.FastxFile(str(reference)) as records:
        contigs = {str(record.name) for record in records}
    lines = primers.read_text().splitlines()
    named = {line.split("\t")[0] for line in lines if line.strip() and not line.startswith(("#", "track", "browser"))}
    if strange := sorted(named - contigs):
        raise InputError(
            f"{primers} names the contig {strange[0]}, and {reference} has {', '.join(sorted(contigs))}. "
            "Give the primers of this genome, or rename the contig in one of them."
        )


def index_reference(fasta: Path, ctx: Any) -> Path:
    """Copy the genome into the try's folder, where the indices lie beside it; gzip -cdf also takes plain text."""
    out = ctx.shell(
        """
        gzip -cdf {fasta} > genome.fa
        bwa index genome.fa
        samtools faidx genome.fa
        """,
        fasta=fasta,
        outputs=["genome.fa", "genome.fa.fai", *(f"genome.fa.{end}" for end in ("amb", "ann", "bwt", "pac", "sa"))],
    )
    return out / "genome.fa"


def trim(row: Row, ctx: Any) -> list[Path]:
    """Trim adapters and bad ends. With one thread fastp still takes a gigabyte: it allots its buffers ahead."""
    made = ["R1.fastq.gz", "R2.fastq.gz"]
    out = ctx.process(
        ["fastp", "-w", "1", "-i", row.fastq_1, "-I", row.fastq_2, "-o", made[0], "-O", made[1],
         "--detect_adapter_for_pe", "-j", "fastp.json", "-h", "fastp.html"],
        outputs=[*made, "fastp.json"],
        memory=Escalate("2G", max="8G"),
    )
    return [out / file for file in made]


def align(reads: list[Path], sample: str, genome: Path, ctx: Any) -> Path:
    """Align the pairs and sort them by position. -K: else the alignments would change with the threads."""
    out = ctx.pipe(
        ["bwa", "mem", "-t", "1", "-K", "10000000", "-R", rf"@RG\tID:{sample}\tSM:{sample}\tPL:ILLUMINA",
         genome, *reads],
        ["samtools", "sort", "-o", "mapped.bam", "-"],
        outputs=["mapped.bam"],
        memory=Escalate("1G", max="8G"),
    )
    return out / "mapped.bam"


def count_flags(bam: Path, sample: str, ctx: Any) -> Path:
    """Count mapped, paired and other reads."""
    file = f"{sample}.flagstat.json"
    return ctx.process(["samtools", "flagstat", "-O", "json", bam], stdout=file, outputs=[file]) / file


def reads_mapped(flagstat: Path) -> int:
    """Return how many alignments samtools flagstat has counted as mapped."""
    return int(json.loads(flagstat.read_text())["QC-passed reads"]["mapped"])


def clip_primers(bam: Path, sample: str, primers: Path, ctx: Any) -> Path:
    """Clip primers from both ends, then mend what the mates know of each other."""
    made = f"{sample}.bam"
    out = ctx.pipe(
        ["samtools", "ampliconclip", "--both-ends", "--filter-len", "30", "-b", primers, bam],
        ["samtools", "sort", "-n", "-"],
        ["samtools", "fixmate", "-m", "-", "-"],
        ["samtools", "sort", "-o", made, "-"],
        outputs=[made],
        memory=Escalate("2G", max="8G"),
    )
    return out / made


def find_low_coverage(bam: Path, least: int, ctx: Any) -> Path:
    """Find the positions under ``least`` reads. There may rightly be none, so the file is not declared as an output."""
    out = ctx.shell(
        """
        samtools depth -a -d 0 {bam} | awk -v least={least} '$3 < least {{ print $1 "\\t" $2 - 1 "\\t" $2 }}' > low.bed
        """,
        bam=bam,
        least=least,
    )
    return out / "low.bed"


def call(bam: Path, sample: str, genome: Path, least: int, ctx: Any) -> Path:
    """Call variants of a haploid genome. -d: else the depth is cut at 250, which thins amplicons silently."""
    vcf = f"{sample}.vcf.gz"
    out = ctx.shell(
        """
        bcftools mpileup -d 100000 -f {genome} {bam} -Ou | bcftools call --ploidy 1 -mv -Ou |
            bcftools norm -f {genome} -Ou | bcftools view -i {wanted} -Oz -o {vcf}
        bcftools index -t {vcf}
        """,
        genome=genome,
        bam=bam,
        wanted=f"QUAL>=20 && INFO/DP>={least}",
        vcf=vcf,
        outputs=[vcf, f"{vcf}.tbi"],
    )
    return out / vcf


def apply_calls(vcf: Path, low: Path, sample: str, genome: Path, ctx: Any) -> Path:
    """Put the variants into the genome; what is covered too thinly becomes N."""
    made = f"{sample}.consensus.fa"
    return ctx.process(["bcftools", "consensus", "-f", genome, "-m", low, vcf], stdout=made, outputs=[made]) / made


def count_unknown(consensus: Path) -> tuple[int, int]:
    """Return how many bases are N, and how many there are: a consensus of N only is no error of bcftools'."""
    with pysam.FastxFile(str(consensus)) as records:
        sequences = [(record.sequence or "").upper() for record in records]
    return sum(sequence.count("N") for sequence in sequences), sum(map(len, sequences))


def count_variants(vcf: Path) -> int:
    """Count the records of a VCF."""
    with pysam.VariantFile(str(vcf)) as records:
        return sum(1 for _ in records)


def write_table(done: dict[str, dict[str, Any]], skipped: dict[str, str]) -> Path:
    """Write the table of all samples into the current folder, that of the try."""
    file = Path("samples.tsv")
    lines = ["sample\tmapped\tvariants\tN\tlength\tleft out because"]
    for name, row in done.items():
        lines.append("\t".join(map(str, [name, row["mapped"], row["variants"], row["unknown"], row["length"], ""])))
    lines += [f"{name}\t\t\t\t\t{reason}" for name, reason in skipped.items()]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file
