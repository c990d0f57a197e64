"""Facts about truncated, uneven and empty reads, and about pipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tools.declared import records_in, some_records
from tests.tools.known import fact
from tests.tools.steps import mapping, run, trimming


@fact
def whole_reads_bwa(data, ctx):
    mapping(ctx, ["bwa", "mem", data / "genome.fa", data / "R1.fq.gz", data / "R2.fq.gz"],
            data / "R1.fq.gz", data / "R2.fq.gz")  # fmt: skip


@fact
def truncated_bwa(data, ctx):
    cut = data / "cut_R1.fq.gz"
    mapping(ctx, ["bwa", "mem", data / "genome.fa", cut], cut)


@fact
def truncated_minimap2(data, ctx):
    cut = data / "cut_R1.fq.gz"
    mapping(ctx, ["minimap2", "-ax", "sr", data / "genome.fa", cut], cut)


@fact
def truncated_fastp(data, ctx):
    trimming(ctx, data / "cut_R1.fq.gz", data / "cut_R2.fq.gz")


def hisat2(ctx: Any, data: Path, *options: Any) -> None:
    def step():
        index = ctx.process(["hisat2-build", "-q", data / "genome.fa", "idx"], outputs=["idx.1.ht2"])
        aligner = ["hisat2", "-x", index / "idx", *options]
        made = ctx.pipe(aligner, ["samtools", "sort", "-o", "S.bam", "-"], outputs=["S.bam"])
        return ctx.process(["samtools", "view", "-c", made / "S.bam"], stdout="count.txt", check=some_records)

    ctx.step("map", step)


@fact
def truncated_hisat2(data, ctx):
    hisat2(ctx, data, "-1", data / "cut_R1.fq.gz", "-2", data / "cut_R2.fq.gz")


@fact
def truncated_single_end_hisat2(data, ctx):
    cut = data / "cut_R1.fq.gz"
    index = run(ctx, ["hisat2-build", "-q", data / "genome.fa", "idx"], outputs=["idx.1.ht2"])
    mapping(ctx, ["hisat2", "-x", index / "idx", "-U", cut], cut)


@fact
def uneven_hisat2(data, ctx):
    hisat2(ctx, data, "-1", data / "R1.fq.gz", "-2", data / "short_R2.fq.gz")


@fact
def empty_hisat2(data, ctx):
    hisat2(ctx, data, "-U", data / "empty.fq.gz")


@fact
def zero_bytes_hisat2(data, ctx):
    hisat2(ctx, data, "-U", data / "zero.fq.gz")


def salmon(ctx: Any, data: Path, *reads: Any) -> None:
    def saw_all(folder: Path) -> str | None:
        found = json.loads((folder / "S" / "aux_info" / "meta_info.json").read_text())["num_processed"]
        wanted = records_in(reads[1])
        return None if found == wanted > 0 else f"salmon saw {found} of {wanted} fragments"

    def step():
        index = ctx.process(["salmon", "index", "-t", data / "genome.fa", "-i", "idx", "-p", "1"], outputs=["idx"])
        return ctx.process(
            ["salmon", "quant", "-i", index / "idx", "-l", "A", *reads, "-p", "1", "-o", "S"], outputs=["S"],
            check=saw_all,
        )  # fmt: skip

    ctx.step("quantify", step)


@fact
def truncated_salmon(data, ctx):
    salmon(ctx, data, "-1", data / "cut_R1.fq.gz", "-2", data / "cut_R2.fq.gz")


@fact
def truncated_single_end_salmon(data, ctx):
    salmon(ctx, data, "-r", data / "cut_R1.fq.gz")


@fact
def folder_of_salmon_is_an_output(data, ctx):
    salmon(ctx, data, "-1", data / "R1.fq.gz", "-2", data / "R2.fq.gz")


@fact
def uneven_bwa(data, ctx):
    reads = (data / "R1.fq.gz", data / "short_R2.fq.gz")
    mapping(ctx, ["bwa", "mem", data / "genome.fa", *reads], *reads)


@fact
def uneven_minimap2(data, ctx):
    reads = (data / "R1.fq.gz", data / "short_R2.fq.gz")
    mapping(ctx, ["minimap2", "-ax", "sr", data / "genome.fa", *reads], *reads)


@fact
def uneven_fastp(data, ctx):
    trimming(ctx, data / "R1.fq.gz", data / "short_R2.fq.gz")


@fact
def empty_bwa(data, ctx):
    mapping(ctx, ["bwa", "mem", data / "genome.fa", data / "empty.fq.gz"], data / "empty.fq.gz")


@fact
def empty_minimap2(data, ctx):
    mapping(ctx, ["minimap2", "-ax", "sr", data / "genome.fa", data / "empty.fq.gz"], data / "empty.fq.gz")


@fact
def zero_bytes_minimap2(data, ctx):
    mapping(ctx, ["minimap2", "-ax", "sr", data / "genome.fa", data / "zero.fq.gz"], data / "empty.fq.gz")


@fact
def zero_bytes_bwa(data, ctx):
    mapping(ctx, ["bwa", "mem", data / "genome.fa", data / "zero.fq.gz"], data / "empty.fq.gz")


@fact
def empty_fastp(data, ctx):
    trimming(ctx, data / "empty.fq.gz", data / "empty.fq.gz")


@fact
def zero_bytes_fastp(data, ctx):
    trimming(ctx, data / "zero.fq.gz", data / "zero.fq.gz")


@fact
def interleaved_without_p(data, ctx):
    def paired(folder: Path) -> str | None:
        found = json.loads((folder / "flagstat.json").read_text())["QC-passed reads"]["paired in sequencing"]
        return None if found > 0 else "no read is paired: interleaved reads need bwa mem -p"

    def step():
        made = ctx.pipe(
            ["bwa", "mem", data / "genome.fa", data / "interleaved.fq.gz"], ["samtools", "sort", "-o", "S.bam", "-"],
            outputs=["S.bam"],
        )  # fmt: skip
        return ctx.process(["samtools", "flagstat", "-O", "json", made / "S.bam"], stdout="flagstat.json", check=paired)

    ctx.step("map", step)


# -- pipes -------------------------------------------------------------------------------------------------------------


@fact
def aligner_fails_in_a_pipe(data, ctx):
    members = (["bwa", "mem", data / "genome.fa", data / "cut_R1.fq.gz"], ["samtools", "sort", "-o", "S.bam", "-"])
    ctx.step("map", lambda: ctx.pipe(*members, outputs=["S.bam"]))


@fact
def aligner_fails_in_a_shell(data, ctx):
    text = "bwa mem {genome} {reads} | samtools sort -o S.bam -"
    ctx.step("map", lambda: ctx.shell(text, genome=data / "genome.fa", reads=data / "cut_R1.fq.gz", outputs=["S.bam"]))


@fact
def stream_cut_at_a_line_end(data, ctx):
    mapping(ctx, ["cat", data / "cut.sam"], data / "R1.fq.gz", data / "R2.fq.gz")


@fact
def stream_cut_inside_a_line(data, ctx):
    mapping(ctx, ["cat", data / "torn.sam"], data / "R1.fq.gz", data / "R2.fq.gz")
