"""A pipeline of facts: each sample does what a user would do in one situation in which tools hide that they failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canard_pipe import InputFile, Pipeline, SampleRow
from tests.tools.declared import (
    Check,
    contigs_agree,
    records_in,
    sites_on_both_contigs,
    some_records,
    something_counted,
)
from tests.tools.steps import mapping, run, trimming

FACTS: dict[str, Callable[[Path, Any], None]] = {}


class Row(SampleRow):
    fact: str


pipeline = Pipeline(
    "facts", rows=Row, key="fact", tries=1, params={"data": InputFile, "small": str},
    tools=["bwa", "minimap2", "samtools", "bcftools", "fastp", "hisat2", "salmon", "featureCounts", "seqtk", "bgzip"],
)  # fmt: skip


@pipeline.sample
def one(sample, ctx):
    FACTS[sample.key](ctx.params.data.parent, ctx)


def fact(function: Callable[[Path, Any], None]) -> Callable[[Path, Any], None]:
    FACTS[function.__name__] = function
    return function


# -- truncated, uneven and empty reads --------------------------------------------------------------------------------


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


# -- pipes ------------------------------------------------------------------------------------------------------------


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


# -- BAM --------------------------------------------------------------------------------------------------------------


@fact
def bam_without_its_end_as_an_output(data, ctx):
    run(ctx, ["cp", data / "noeof.bam", "S.bam"], outputs=["S.bam"])


@fact
def bam_without_its_end_flagstat(data, ctx):
    run(ctx, ["samtools", "flagstat", data / "noeof.bam"], stdout="s.txt", outputs=["s.txt"])


def counting(ctx: Any, bam: Path, genes: Path) -> None:
    command = ["featureCounts", "-p", "-a", genes, "-o", "counts.txt", bam]
    run(ctx, command, outputs=["counts.txt"], check=something_counted)


@fact
def whole_bam_feature_counts(data, ctx):
    counting(ctx, data / "whole.bam", data / "genes.gtf")


@fact
def bam_without_its_end_feature_counts(data, ctx):
    counting(ctx, data / "noeof.bam", data / "genes.gtf")


@fact
def cut_bam_feature_counts(data, ctx):
    counting(ctx, data / "cut.bam", data / "genes.gtf")


@fact
def other_contig_names_feature_counts(data, ctx):
    counting(ctx, data / "whole.bam", data / "other.gtf")


@fact
def cut_bam_samtools_view(data, ctx):
    run(ctx, ["samtools", "view", "-o", "S.bam", data / "cut.bam"], outputs=["S.bam"])


def calling(ctx: Any, bam: Path, reference: Path, check: Check) -> None:
    def step():
        pileup = ["bcftools", "mpileup", "-f", reference, bam]
        made = ctx.pipe(pileup, ["bcftools", "call", "-mv", "-Oz", "-o", "S.vcf.gz"], outputs=["S.vcf.gz"])
        return ctx.process(
            ["bcftools", "query", "-f", "%CHROM\t%POS\n", made / "S.vcf.gz"], stdout="sites.txt", check=check
        )

    ctx.step("call", step)


@fact
def whole_bam_mpileup(data, ctx):
    calling(ctx, data / "whole.bam", data / "genome.fa", sites_on_both_contigs)


@fact
def cut_bam_mpileup(data, ctx):
    calling(ctx, data / "cut.bam", data / "genome.fa", sites_on_both_contigs)


@fact
def wrong_reference_mpileup(data, ctx):
    calling(ctx, data / "whole.bam", data / "other.fa", contigs_agree)


@fact
def markdup_without_fixmate(data, ctx):
    run(ctx, ["samtools", "markdup", data / "whole.bam", "S.bam"], outputs=["S.bam"])


@fact
def region_without_an_index(data, ctx):
    def step():
        copy = ctx.process(["cp", data / "whole.bam", "S.bam"], outputs=["S.bam"])
        return ctx.process(["samtools", "view", "-b", "-o", "R.bam", copy / "S.bam", "chr1:1-100"], outputs=["R.bam"])

    ctx.step("view", step)


# -- VCF --------------------------------------------------------------------------------------------------------------


def viewing(ctx: Any, vcf: Path, wanted: int) -> None:
    def check(folder: Path) -> str | None:
        found = sum(1 for line in (folder / "S.vcf").read_text().splitlines() if not line.startswith("#"))
        return None if found == wanted else f"{found} of {wanted} records are left"

    run(ctx, ["bcftools", "view", "-o", "S.vcf", vcf], outputs=["S.vcf"], check=check)


def records(data: Path) -> int:
    return sum(1 for line in (data / "calls.vcf").read_text().splitlines() if not line.startswith("#"))


@fact
def plain_vcf_cut_at_a_line_end(data, ctx):
    viewing(ctx, data / "cut.vcf", records(data))


@fact
def plain_vcf_cut_inside_a_line(data, ctx):
    viewing(ctx, data / "torn.vcf", records(data))


@fact
def packed_vcf_cut(data, ctx):
    viewing(ctx, data / "cut.vcf.gz", records(data))


@fact
def packed_vcf_cut_as_an_output(data, ctx):
    run(ctx, ["cp", data / "cut.vcf.gz", "S.vcf.gz"], outputs=["S.vcf.gz"])


@fact
def vcf_region_without_an_index(data, ctx):
    run(ctx, ["bcftools", "view", "-r", "chr1", data / "calls.vcf.gz"], stdout="S.vcf")


@fact
def vcf_merge_without_an_index(data, ctx):
    both = [data / "calls.vcf.gz", data / "none.vcf.gz"]
    run(ctx, ["bcftools", "merge", "-o", "S.vcf", *both], outputs=["S.vcf"])


@fact
def gzipped_vcf_index(data, ctx):
    run(ctx, ["bcftools", "index", data / "gzipped.vcf.gz", "-o", "x.csi"], outputs=["x.csi"])


@fact
def gzipped_vcf_as_an_output(data, ctx):
    run(ctx, ["cp", data / "gzipped.vcf.gz", "S.vcf.gz"], outputs=["S.vcf.gz"])


@fact
def index_made_again(data, ctx):
    """The first try dies after the index was made; the second has a folder of its own."""
    text = "cp {vcf} S.vcf.gz; bcftools index -t S.vcf.gz; [ -e {mark} ] || {{ touch {mark}; exit 75; }}"
    mark = ctx.work / "indexed"
    vcf = data / "calls.vcf.gz"
    ctx.step("index", lambda: ctx.shell(text, vcf=vcf, mark=mark, outputs=["S.vcf.gz.tbi"], tries={75: 2}))


@fact
def index_made_again_in_one_folder(data, ctx):
    text = "cp {vcf} S.vcf.gz; bcftools index -t S.vcf.gz; bcftools index -t S.vcf.gz"
    ctx.step("index", lambda: ctx.shell(text, vcf=data / "calls.vcf.gz", outputs=["S.vcf.gz.tbi"]))


@fact
def empty_result_that_is_right(data, ctx):
    made = run(ctx, ["cp", data / "none.vcf.gz", "S.vcf.gz"], outputs=["S.vcf.gz"])
    ctx.publish({"S.vcf.gz": made / "S.vcf.gz"})


# -- a full disk ------------------------------------------------------------------------------------------------------


def full(name: str, output: str, text: str) -> None:
    """Define the fact of one tool whose output lands on a small disk of its own that is full by then."""

    def run(data: Path, ctx: Any) -> None:
        filled = "cat /dev/zero > filling 2>/dev/null || true; " + text
        place = Path(ctx.params.small) / name
        ctx.step("write", lambda: ctx.shell(filled, data=data, outputs=[output], directory=place))

    run.__name__ = f"full_disk_{name}"
    fact(run)


full("fastp", "T.fq.gz", "fastp -w 1 -i {data}/R1.fq.gz -o T.fq.gz -j /dev/null -h /dev/null")
full("flagstat", "s.json", "samtools flagstat -O json {data}/whole.bam > s.json")
full("depth", "d.txt", "samtools depth -a {data}/whole.bam > d.txt")
full("stats", "s.txt", "bcftools stats {data}/calls.vcf > s.txt")
full("seqtk", "s.fq", "seqtk seq {data}/R1.fq.gz > s.fq")
full("view", "S.vcf.gz", "bcftools view -Oz -o S.vcf.gz {data}/calls.vcf")
full("bwa", "S.sam", "bwa mem {data}/genome.fa {data}/R1.fq.gz > S.sam")
full("samtools_sort", "S.bam", "samtools sort -o S.bam {data}/whole.sam")
