"""A small pipeline for whole runs: a once function, samples with two commands, a cohort. Needs sh only."""

from __future__ import annotations

from pathlib import Path

from tests.program import ROOT, canard, command, environment, start

__all__ = ["PIPELINE", "ROOT", "canard", "command", "environment", "lay_out", "start"]
PIPELINE = """
from __future__ import annotations
from canard_pipe import InputFile, Pipeline, SampleRow, SampleSkipped

class Row(SampleRow):
    sample: str
    fastq: InputFile

pipeline = Pipeline("tiny", rows=Row, key="sample", params={"seconds": (float, 0.0), "hold": (str, "")}, tools=["sh"])

@pipeline.once
def reference(params, ctx):
    return ctx.step("index", lambda: ctx.shell("echo index > index.txt", outputs=["index.txt"]) / "index.txt")

@pipeline.sample(max_failures=1)
def count(sample, ctx):
    reads = sample.row.fastq
    copy = ctx.step("copy", lambda: ctx.shell(
        "echo copying {key}; while [ -e {hold} ]; do sleep 0.1; done; cat {r} > out.txt", key=sample.key,
        hold=ctx.params.hold or "/nonexistent", r=reads, outputs=["out.txt"]) / "out.txt")
    if copy.read_text().strip() == "skip":
        raise SampleSkipped("nothing in it")
    number = ctx.step("count", lambda: ctx.shell(
        "if grep -q bad {r}; then echo 'it is bad' >&2; exit 3; fi; wc -c < {r} > n.txt",
        r=copy, outputs=["n.txt"]) / "n.txt")
    return ctx.publish({f"{sample.key}.txt": number})

@pipeline.cohort(after=count)
def cohort(results, ctx):
    joined = ctx.step("join", lambda: ctx.shell(
        "echo {n} > all.txt", n=len(results), outputs=["all.txt"]) / "all.txt")
    ctx.publish({"all.txt": joined})
"""


def lay_out(folder: Path, **samples: str) -> Path:
    """Write pipeline, sheet and input files below ``folder``: sample=content."""
    (folder / "pipe.py").write_text(PIPELINE)
    rows = ["sample,fastq"]
    for sample, content in samples.items():
        (folder / f"{sample}.in").write_text(content + "\n")
        rows.append(f"{sample},{sample}.in")
    (folder / "s.csv").write_text("\n".join(rows) + "\n")
    return folder
