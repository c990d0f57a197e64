"""Viral consensus: from short reads of a small genome to its variants, its sequence, and one table of all samples.

    canard-pipe run viral.py samples.csv --param reference=NC_045512.2.fasta --param primers=primers.bed

The sheet has the columns sample, fastq_1 and, for pairs, fastq_2; several rows of a sample are its lanes. Wanted are
fastp, bwa, samtools and bcftools. A sample with fewer mapped reads than ``min_mapped`` leaves itself out, with that as
its reason: a failed swab, or a negative control as it should be. Copy this file and change it: it is meant as a start.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canard_pipe import Escalate, InputError, InputFile, Pipeline, SampleRow, SampleSkipped

LEFT_OUT = "left out because"
COLUMNS = ("reads", "trimmed", "mapped", "variants", "N", "length")
Check = Callable[[Path], str | None]


class Row(SampleRow):
    """One lane of a sample: one file of single reads, or two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None


pipeline = Pipeline(
    "viral",
    rows=Row,
    key="sample",
    params={
        "reference": InputFile,
        "primers": InputFile | None,  # a BED file: what lies in a primer is no sequence of the virus
        "min_mapped": 100,  # mapped ones; below that a sample is left out
        "min_depth": 10,  # below that a base is N, and no variant is called
        "min_quality": 20,
    },
    tools=["fastp", "bwa", "samtools", "bcftools"],
    tries={"exit": 1, "output": 1},  # what a tool or a check says of its input, it says again
)


@pipeline.once
def reference(params: Any, ctx: Any) -> Path:
    """Index the reference, once for all samples, and see that the primers are of the same genome."""
    genome: Path = ctx.step("index", index_reference, params.reference, ctx)
    if params.primers is not None:
        ctx.step("compare-primers", compare_primers, params.primers, genome)
    return genome


@pipeline.sample
def consensus(sample: Any, ctx: Any) -> dict[str, Any]:
    """Take one sample from its reads to its consensus sequence, and publish it under results/SAMPLE/."""
    name, genome, params = sample.key, ctx.result_of(reference), ctx.params
    ends = [f".{number}" for number in range(1, len(sample.rows) + 1)] if len(sample.rows) > 1 else [""]
    trimmed, aligned = {}, []
    for end, row in zip(ends, sample.rows, strict=True):  # the lanes
        folder = trimmed[f"{name}{end}"] = ctx.step(f"trim{end}", trim, row, f"{name}{end}", ctx)
        aligned.append(ctx.step(f"map{end}", align, folder, row, f"{name}{end}", name, genome, ctx))
    numbers = [numbers_of_fastp(folder / f"{lane}.fastp.json") for lane, folder in trimmed.items()]
    reads, kept = (sum(each[at] for each in numbers) for at in (0, 1))
    mapped = ctx.step("count", count_mapped, aligned, [trimmed for _, trimmed in numbers], ctx)
    if mapped < params.min_mapped:
        raise SampleSkipped(f"{mapped} reads mapped, {params.min_mapped} needed")

    bam = ctx.step("primers", clip_and_join, aligned, params.primers, name, ctx)
    vcf = ctx.step("call", call, bam, name, genome, ctx)
    fasta, length, unknown = ctx.step("consensus", make_consensus, bam, vcf, name, genome, ctx)
    variants = ctx.step("variants", count_records, vcf, ctx)
    ctx.publish({
        f"{name}.consensus.fa": fasta,
        f"{name}.vcf.gz": vcf,
        f"{name}.vcf.gz.tbi": vcf.with_name(f"{vcf.name}.tbi"),
        f"{name}.bam": bam,
        f"{name}.bam.bai": bam.with_name(f"{bam.name}.bai"),
        **{f"{lane}.fastp.{kind}": folder / f"{lane}.fastp.{kind}"
           for lane, folder in trimmed.items() for kind in ("json", "html")},
    })  # fmt: skip
    numbers_of_sample = (reads, kept, mapped, variants, unknown, length)
    return {"fasta": fasta} | dict(zip(COLUMNS, numbers_of_sample, strict=True))


@pipeline.cohort(after=consensus)
def cohort(results: Any, ctx: Any) -> None:
    """Put all sequences into one file and all numbers into one table, which also names who was left out and why."""
    rows = {sample: {LEFT_OUT: ""} | {name: result[name] for name in COLUMNS} for sample, result in results.items()}
    rows |= {sample: {LEFT_OUT: reason} for sample, reason in results.skipped.items()}
    files = {"samples.tsv": ctx.step("table", lambda: ctx.call(write_table, rows, outputs=["samples.tsv"]))}
    sequences = [result["fasta"] for result in results.values()]
    if sequences:
        files["consensus.fa"] = ctx.step("join", join_sequences, sequences, ctx)
    ctx.publish(files)


# -- steps ------------------------------------------------------------------------------------------------------------


def index_reference(fasta: Path, ctx: Any) -> Path:
    """Copy the reference into the try's folder, since the indices lie beside it; gzip -cdf also takes plain text."""
    out = ctx.shell(
        "gzip -cdf {fasta} > genome.fa; bwa index genome.fa; samtools faidx genome.fa",
        fasta=fasta,
        outputs=["genome.fa", "genome.fa.fai", *(f"genome.fa.{end}" for end in ("amb", "ann", "bwt", "pac", "sa"))],
    )
    return out / "genome.fa"


def compare_primers(primers: Path, genome: Path) -> None:
    """Refuse primers of another genome: samtools would clip nothing, and say nothing."""
    known = {line.split("\t")[0] for line in genome.with_name(f"{genome.name}.fai").read_text().splitlines()}
    lines = primers.read_text().splitlines()
    named = {line.split("\t")[0] for line in lines if line.strip() and not line.startswith(("#", "track", "browser"))}
    if strange := sorted(named - known):
        raise InputError(
            f"{primers} names the contig {strange[0]}, and the reference has {', '.join(sorted(known))}. "
            "Give the primers of this genome, or rename the contig in one of them."
        )


def trim(row: Row, lane: str, ctx: Any) -> Path:
    """Trim the reads of one lane; return the folder with what fastp made.

    fastp takes half a file for a whole one and the shorter of two for both, so the lines of the files are counted, too.
    """
    options: list[Any] = []
    for words, file, name in zip((("-i", "-o"), ("-I", "-O")), row.reads, names_of_reads(lane, row), strict=False):
        options += [words[0], file, words[1], name]
    if row.fastq_2 is not None:
        options.append("--detect_adapter_for_pe")
    folder: Path = ctx.shell(
        """
        for reads in {reads}; do gzip -cdf "$reads" | wc -l >> lines.txt; done
        fastp -w 1 {options} -j {lane}.fastp.json -h {lane}.fastp.html
        """,
        reads=[*row.reads], options=options, lane=lane, outputs=[f"{lane}.fastp.json", f"{lane}.fastp.html"],
        check=saw_all_reads(lane), memory=Escalate("2G", max="8G"), time="4h",
    )  # fmt: skip
    return folder


def names_of_reads(lane: str, row: Row) -> list[str]:
    """Return the names of the files with a lane's trimmed reads. They may rightly hold none."""
    return [f"{lane}_R{side}.fastq.gz" for side, _ in enumerate(row.reads, start=1)]


def saw_all_reads(lane: str) -> Check:
    """Return a check that fastp has seen as many reads as there are."""

    def check(folder: Path) -> str | None:
        lines = [int(line) for line in (folder / "lines.txt").read_text().split()]
        if len(set(lines)) > 1:
            return f"the two files have {lines[0] // 4} and {lines[1] // 4} reads: they are no pairs"
        seen, _ = numbers_of_fastp(folder / f"{lane}.fastp.json")
        return None if 4 * seen == sum(lines) else f"fastp saw {seen} of {sum(lines) / 4:g} reads"

    return check


def numbers_of_fastp(file: Path) -> tuple[int, int]:
    """Return how many reads there were before and after trimming."""
    summary = json.loads(file.read_text())["summary"]
    return summary["before_filtering"]["total_reads"], summary["after_filtering"]["total_reads"]


def align(trimmed: Path, row: Row, lane: str, sample: str, genome: Path, ctx: Any) -> Path:
    """Align the trimmed reads of one lane and sort them by position."""
    reads = [trimmed / name for name in names_of_reads(lane, row)]
    out = ctx.pipe(
        # -K: without it the batches grow with the threads, and the alignments change with them.
        ["bwa", "mem", "-t", "2", "-K", "10000000", "-R", rf"@RG\tID:{lane}\tSM:{sample}\tPL:ILLUMINA", genome, *reads],
        ["samtools", "sort", "-o", f"{lane}.bam", "-"],
        outputs=[f"{lane}.bam"], cpus=2, memory=Escalate("1G", max="16G"), time="12h",
    )  # fmt: skip
    return out / f"{lane}.bam"


def count_mapped(lanes: list[Path], reads: list[int], ctx: Any) -> int:
    """Return how many reads of all lanes are mapped. All that went into a lane must have come out."""

    def flags(folder: Path) -> dict[str, int]:
        counts: dict[str, int] = json.loads((folder / "flagstat.json").read_text())["QC-passed reads"]
        return counts

    mapped = 0
    for bam, wanted in zip(lanes, reads, strict=True):

        def all_came_out(folder: Path, wanted: int = wanted) -> str | None:
            found = flags(folder)["primary"]
            return None if found == wanted else f"{found} of {wanted} reads came out of bwa"

        out = ctx.process(
            ["samtools", "flagstat", "-O", "json", bam], stdout="flagstat.json", outputs=["flagstat.json"],
            check=all_came_out,
        )  # fmt: skip
        mapped += flags(out)["primary mapped"]
    return mapped


def clip_and_join(lanes: list[Path], primers: Path | None, sample: str, ctx: Any) -> Path:
    """Clip the primers off both ends of the reads, if there are primers; return the indexed alignments of all lanes.

    Lane by lane, since fixmate goes by the names of reads, and two lanes may use the same ones.
    """
    if primers is not None:
        lanes = [
            ctx.pipe(
                ["samtools", "ampliconclip", "--both-ends", "--filter-len", "30", "-b", primers, bam],
                ["samtools", "sort", "-n", "-"],
                ["samtools", "fixmate", "-m", "-", "-"],
                ["samtools", "sort", "-o", "clipped.bam", "-"],
                outputs=["clipped.bam"], memory=Escalate("1G", max="16G"),
            ) / "clipped.bam"
            for bam in lanes
        ]  # fmt: skip
    bam = f"{sample}.bam"
    join = "cp {lanes} {bam}" if len(lanes) == 1 else "samtools merge -o {bam} {lanes}"
    out = ctx.shell(join + "\nsamtools index {bam}", lanes=lanes, bam=bam, outputs=[bam, f"{bam}.bai"])
    return out / bam


def call(bam: Path, sample: str, genome: Path, ctx: Any) -> Path:
    """Call variants of a haploid genome. A sample that equals the reference has none, which is right.

    -d: amplicons are far deeper than the 250 reads that mpileup looks at by itself.
    """
    vcf = f"{sample}.vcf.gz"
    out = ctx.shell(
        """
        bcftools mpileup -d 100000 -f {genome} {bam} -Ou | bcftools call --ploidy 1 -mv -Ou \\
            | bcftools norm -f {genome} -Ou | bcftools view -i {wanted} -Oz -o {vcf}
        bcftools index -t {vcf}
        """,
        genome=genome, bam=bam, vcf=vcf, wanted=f"QUAL>={ctx.params.min_quality} && INFO/DP>={ctx.params.min_depth}",
        outputs=[vcf, f"{vcf}.tbi"], memory=Escalate("1G", max="8G"), time="12h",
    )  # fmt: skip
    return out / vcf


def make_consensus(bam: Path, vcf: Path, sample: str, genome: Path, ctx: Any) -> tuple[Path, int, int]:
    """Put the variants into the reference and N where too little was seen; return file, length and number of N."""
    fasta = f"{sample}.consensus.fa"
    out = ctx.shell(
        """
        samtools depth -a -d 0 {bam} > depth.tsv
        awk -v least={least} '$3 < least {{ print $1 "\\t" $2 - 1 "\\t" $2 }}' depth.tsv > low.bed
        bcftools consensus -f {genome} -m low.bed {vcf} > sequence.fa
        awk '/^>/ {{ print ">" ENVIRON["SAMPLE"] " " substr($1, 2); next }} {{ print }}' sequence.fa > {fasta}
        """,
        bam=bam, vcf=vcf, genome=genome, fasta=fasta, least=ctx.params.min_depth, env={"SAMPLE": sample},
        outputs=["depth.tsv", fasta],
    )  # fmt: skip
    bases = "".join(line for line in (out / fasta).read_text().splitlines() if not line.startswith(">")).upper()
    return out / fasta, len(bases), bases.count("N")


def count_records(vcf: Path, ctx: Any) -> int:
    """Return how many variants there are."""
    out = ctx.shell("bcftools view -H {vcf} | wc -l > count.txt", vcf=vcf, outputs=["count.txt"])
    return int((out / "count.txt").read_text())


def join_sequences(sequences: list[Path], ctx: Any) -> Path:
    """Put all sequences into one file."""
    out: Path = ctx.process(["cat", *sequences], stdout="consensus.fa", outputs=["consensus.fa"])
    return out / "consensus.fa"


def write_table(rows: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the numbers of all samples, in a process of its own and in the folder of its try."""
    columns = (*COLUMNS, LEFT_OUT)
    with Path("samples.tsv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ("sample", *columns), restval="", delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows({"sample": sample, **row} for sample, row in rows.items())
    return Path("samples.tsv")
