"""The self-test of `canard-pipe doctor`: every kind of function and command once, with programs of any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canard_pipe import InputFile, Pipeline, SampleRow


class Row(SampleRow):
    sample: str
    words: InputFile


pipeline = Pipeline("selftest", rows=Row, key="sample", tools=["sh", "sort"])
SMALL: dict[str, Any] = {"cpus": 1, "memory": "64M", "time": "5m"}


@pipeline.once
def header(_params: Any, ctx: Any) -> Any:
    words = ["sh", "-c", "echo words > header"]
    return ctx.step("header", lambda: ctx.process(words, outputs=["header"], **SMALL) / "header")


@pipeline.sample
def count(sample: Any, ctx: Any) -> None:
    words = sample.row.words
    pipe = ["sort", words], ["sort", "-r"]
    ordered = ctx.step("sort", lambda: ctx.pipe(*pipe, stdout="sorted", outputs=["sorted"], **SMALL) / "sorted")
    number = ctx.step("count", lambda: ctx.call(lines_of, str(ordered), **SMALL))
    made = ctx.step(
        "write", lambda: ctx.shell("cat {head} {file} > all; echo {n} >> all", head=ctx.result_of(header), file=ordered,
                                   n=number, outputs=["all"], **SMALL) / "all",
    )  # fmt: skip
    ctx.publish({"words.txt": made})


def lines_of(path: str) -> int:
    """Count the lines of a file, in a fresh interpreter."""
    return len(Path(path).read_text(encoding="utf-8").splitlines())


@pipeline.cohort(after=count)
def together(results: Any, ctx: Any) -> None:
    made = ctx.step(
        "names", lambda: ctx.shell("echo {n} > names", n=len(results), outputs=["names"], **SMALL) / "names"
    )
    ctx.publish({"names.txt": made})
