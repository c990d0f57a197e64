"""RNA-seq: how many reads come from each transcript of each sample, and one table of all samples.

    canard-pipe run rnaseq.py samples.csv --param transcripts=cdna.fa.gz

The sheet has the columns sample, fastq_1 and, for pairs, fastq_2; several rows of a sample are its lanes, which salmon
reads together. Wanted is salmon. A sample of which less than ``min_percent_mapped`` maps leaves itself out, with that
as its reason. Copy this file and change it: it is meant as a start.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canard_pipe import Escalate, InputError, InputFile, Pipeline, SampleRow, SampleSkipped

LEFT_OUT = "left out because"
LEAST_FRAGMENTS = 10  # with fewer salmon quantifies nothing


class Row(SampleRow):
    """One lane of a sample: one file of single reads, or two files of pairs."""

    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None


pipeline = Pipeline(
    "rnaseq",
    rows=Row,
    key="sample",
    params={"transcripts": InputFile, "k": 31, "min_percent_mapped": 5.0},
    tools=["salmon"],
    tries={"exit": 1, "output": 1},  # what a tool or a check says of its input, it says again
)


@pipeline.once
def index(params: Any, ctx: Any) -> Path:
    """Index the transcripts, once for all samples. The index is a folder: an unfinished one is never taken for it."""
    folder: Path = ctx.step("index", lambda: ctx.process(
        ["salmon", "index", "-p", "2", "-k", params.k, "-t", params.transcripts, "-i", "index"],
        outputs=["index"], cpus=2, memory=Escalate("2G", max="32G"), time="12h",
    ))  # fmt: skip
    return folder / "index"


@pipeline.sample
def quantify(sample: Any, ctx: Any) -> dict[str, Any]:
    """Take one sample from its reads to its counts, and publish salmon's folder under results/SAMPLE/."""
    pairs = {row.fastq_2 is not None for row in sample.rows}
    if len(pairs) > 1:
        raise InputError(f"sample {sample.key}: some of its lanes are pairs and some are single reads")
    counts = ctx.step("count", count_reads, [list(row.reads) for row in sample.rows], ctx)
    folder = ctx.step("quantify", run_salmon, sample.rows, sum(counts), ctx)
    numbers = json.loads((folder / "aux_info" / "meta_info.json").read_text())
    if numbers["num_mapped"] < LEAST_FRAGMENTS or numbers["percent_mapped"] < ctx.params.min_percent_mapped:
        raise SampleSkipped(
            f"{numbers['num_mapped']} of {numbers['num_processed']} fragments mapped, "
            f"{ctx.params.min_percent_mapped:g} % and {LEAST_FRAGMENTS} are needed"
        )
    ctx.publish({sample.key: folder})
    return {"folder": folder, "fragments": numbers["num_processed"], "mapped": numbers["num_mapped"]}


@pipeline.cohort(after=quantify)
def cohort(results: Any, ctx: Any) -> None:
    """Put the counts of all samples into one table, and the numbers of mapped fragments into another."""
    quants = {sample: result["folder"] / "quant.sf" for sample, result in results.items()}
    rows = [
        {"sample": sample, "fragments": result["fragments"], "mapped": result["mapped"]}
        for sample, result in results.items()
    ] + [{"sample": sample, LEFT_OUT: reason} for sample, reason in results.skipped.items()]
    folder = ctx.step("tables", lambda: ctx.call(
        write_tables, quants, rows, outputs=["counts.tsv", "tpm.tsv", "samples.tsv"], memory=Escalate("1G", max="16G"),
    ))  # fmt: skip
    ctx.publish({name: folder / name for name in ("counts.tsv", "tpm.tsv", "samples.tsv")})


# -- steps ------------------------------------------------------------------------------------------------------------


def count_reads(lanes: list[list[Path]], ctx: Any) -> list[int]:
    """Return how many fragments each lane has. Files of a pair that differ are no pairs."""

    def even(folder: Path) -> str | None:
        counts = lines(folder)
        for files in lanes:
            found = {counts.pop(0) for _ in files}
            if len(found) > 1:
                return f"{' and '.join(str(count // 4) for count in sorted(found))} reads in {files}: they are no pairs"
        return None

    def lines(folder: Path) -> list[int]:
        return [int(line) for line in (folder / "lines.txt").read_text().split()]

    folder = ctx.shell(
        'for reads in {files}; do gzip -cdf "$reads" | wc -l >> lines.txt; done',
        files=[file for files in lanes for file in files], outputs=["lines.txt"], check=even, time="4h",
    )  # fmt: skip
    counts, first = lines(folder), 0
    fragments = []
    for files in lanes:
        fragments.append(counts[first] // 4)
        first += len(files)
    return fragments


def run_salmon(rows: list[Row], fragments: int, ctx: Any) -> Path:
    """Quantify one sample, all lanes together; return salmon's folder."""
    if rows[0].fastq_2 is None:
        reads = ["-r", *(row.fastq_1 for row in rows)]
    else:
        reads = ["-1", *(row.fastq_1 for row in rows), "-2", *(row.fastq_2 for row in rows)]

    def saw_all(folder: Path) -> str | None:
        found = json.loads((folder / "salmon" / "aux_info" / "meta_info.json").read_text())["num_processed"]
        return None if found == fragments else f"salmon saw {found} of {fragments} fragments"

    # With too few fragments salmon ends with 1, having reported how many there were.
    out = ctx.shell(
        """
        salmon quant -p 2 -i {index} -l A {reads} --validateMappings --minAssignedFrags {least} -o salmon || {{
            code=$?
            grep -q 'number of required assigned fragments' salmon/logs/salmon_quant.log || exit $code
        }}
        """,
        index=ctx.result_of(index), reads=reads, least=LEAST_FRAGMENTS, outputs=["salmon/quant.sf", "salmon"],
        check=saw_all, cpus=2, memory=Escalate("2G", max="32G"), time="12h",
    )  # fmt: skip
    return out / "salmon"


def write_tables(quants: Mapping[str, Path], rows: list[Mapping[str, Any]]) -> Path:
    """Write the tables, in a process of its own and in the folder of its try; return that folder."""
    for file, column in (("counts.tsv", "NumReads"), ("tpm.tsv", "TPM")):
        values: dict[str, dict[str, str]] = {}
        for sample, quant in quants.items():
            with quant.open(newline="", encoding="utf-8") as opened:
                for line in csv.DictReader(opened, delimiter="\t"):
                    values.setdefault(line["Name"], {})[sample] = line[column]
        _write(file, ["transcript", *quants], [{"transcript": name} | found for name, found in values.items()])
    _write("samples.tsv", ["sample", "fragments", "mapped", LEFT_OUT], rows)
    return Path()


def _write(file: str, columns: list[str], rows: list[Any]) -> None:
    with Path(file).open("w", newline="", encoding="utf-8") as opened:
        table = csv.DictWriter(opened, columns, restval="", delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
