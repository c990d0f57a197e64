"""Steps that several situations share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.declared import fastp_saw_all, mapped_all


def run(ctx: Any, args: list[Any], **options: Any) -> Path:
    """One program in a step of its own."""
    return ctx.step(Path(str(args[0])).name, lambda: ctx.process(args, **options))


def mapping(ctx: Any, aligner: list[Any], *reads: Path) -> None:
    """Map, sort and count as a pipeline would; the check compares with what went in."""

    def step():
        made = ctx.pipe(aligner, ["samtools", "sort", "-o", "S.bam", "-"], outputs=["S.bam"])
        return ctx.process(
            ["samtools", "flagstat", "-O", "json", made / "S.bam"],
            stdout="flagstat.json", outputs=["flagstat.json"], check=mapped_all(*reads),
        )  # fmt: skip

    ctx.step("map", step)


def trimming(ctx: Any, first: Path, second: Path) -> None:
    files = ["-i", first, "-I", second, "-o", "T1.fq.gz", "-O", "T2.fq.gz", "-j", "S.json", "-h", "S.html"]
    run(ctx, ["fastp", "-w", "1", *files], outputs=["S.json"], check=fastp_saw_all(first, second))
