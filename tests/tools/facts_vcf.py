"""Facts about VCF files that are cut, packed the wrong way, indexed twice or rightly empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tools.known import fact
from tests.tools.steps import run


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


def second_block(name: str, *tool: str, counted: Callable[[str], int]) -> None:
    """Define the fact of one tool that reads half a VCF: whole up to its second block, the rest of it not there."""

    def one(data: Path, ctx: Any) -> None:
        def check(folder: Path) -> str | None:
            found = counted((folder / "out.txt").read_text())
            return None if found == records(data) else f"{found} of {records(data)} records were seen"

        run(ctx, [*tool, data / "block.vcf.gz"], stdout="out.txt", outputs=["out.txt"], check=check)

    one.__name__ = f"packed_vcf_cut_in_its_second_block_{name}"
    fact(one)


def in_stats(text: str) -> int:
    return int(next(line.split("\t")[3] for line in text.splitlines() if "\tnumber of records:\t" in line))


def as_lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if not line.startswith("#"))


second_block("view", "bcftools", "view", counted=as_lines)
second_block("stats", "bcftools", "stats", counted=in_stats)
second_block("query", "bcftools", "query", "-f", "%POS\n", counted=as_lines)
second_block("norm", "bcftools", "norm", "-m", "-any", counted=as_lines)
second_block("concat", "bcftools", "concat", counted=as_lines)
second_block("index", "bcftools", "index", "-o", "x.csi", counted=as_lines)


@fact
def packed_vcf_cut_in_its_second_block_merge(data, ctx):
    def step():
        made = ctx.shell(
            "cp {data}/ended.vcf.gz A.vcf.gz; cp {data}/none.vcf.gz B.vcf.gz; bcftools index -f A.vcf.gz;"
            " bcftools index -f B.vcf.gz; bcftools merge --force-samples -o S.vcf A.vcf.gz B.vcf.gz",
            data=data, outputs=["S.vcf"], check=whole,
        )  # fmt: skip
        return made / "S.vcf"

    def whole(folder: Path) -> str | None:
        found = as_lines((folder / "S.vcf").read_text())
        return None if found == records(data) else f"{found} of {records(data)} records were merged"

    ctx.step("merge", step)


@fact
def packed_vcf_cut_as_an_output(data, ctx):
    run(ctx, ["cp", data / "cut.vcf.gz", "S.vcf.gz"], outputs=["S.vcf.gz"])


@fact
def vcf_region_without_an_index(data, ctx):
    run(ctx, ["bcftools", "view", "-r", "chr1", data / "calls.vcf.gz"], stdout="S.vcf")


@fact
def consensus_without_an_index(data, ctx):
    run(ctx, ["bcftools", "consensus", "-f", data / "genome.fa", data / "calls.vcf.gz"], stdout="S.fa")


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
