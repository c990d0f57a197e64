"""Facts about BAM files that are cut, of another genome, unprepared or without an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.declared import Check, contigs_agree, sites_on_both_contigs, something_counted
from tests.tools.known import fact
from tests.tools.steps import run


@fact
def bam_without_its_end_as_an_output(data, ctx):
    run(ctx, ["cp", data / "noeof.bam", "S.bam"], outputs=["S.bam"])


@fact
def bam_without_its_end_flagstat(data, ctx):
    run(ctx, ["samtools", "flagstat", data / "noeof.bam"], stdout="s.txt", outputs=["s.txt"])


@fact
def bam_without_its_end_view(data, ctx):
    run(ctx, ["samtools", "view", "-c", data / "noeof.bam"], stdout="count.txt", outputs=["count.txt"])


@fact
def bam_without_its_end_index(data, ctx):
    run(ctx, ["samtools", "index", data / "noeof.bam", "S.bam.bai"], outputs=["S.bam.bai"])


@fact
def bam_without_its_end_quickcheck(data, ctx):
    run(ctx, ["samtools", "quickcheck", data / "noeof.bam"])


def read_with_pysam(bam):
    import pysam

    with pysam.AlignmentFile(bam) as alignments:
        return sum(1 for _ in alignments)


@fact
def bam_without_its_end_pysam(data, ctx):
    ctx.step("read", lambda: ctx.call(read_with_pysam, data / "noeof.bam"))


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


@fact
def cut_bam_sort(data, ctx):
    run(ctx, ["samtools", "sort", "-o", "S.bam", data / "cut.bam"], outputs=["S.bam"])


@fact
def cut_bam_index(data, ctx):
    run(ctx, ["samtools", "index", data / "cut.bam", "S.bam.bai"], outputs=["S.bam.bai"])


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
