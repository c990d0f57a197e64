"""The pipelines viral, rnaseq and qc on made data: what comes out, and what is not let through."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require_tool
from tests.program import ROOT, canard
from tests.tools import data

PIPELINES = ROOT / "pipelines"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A genome of two contigs with 1,200 pairs of a mutant of it, and what can go wrong with them; tests/tools/data.py.
    """
    for tool in ("bwa", "samtools", "bcftools", "fastp", "salmon"):
        require_tool(tool)
    folder = tmp_path_factory.mktemp("made") / "data"
    data.make(folder)
    return folder


def run(folder: Path, name: str, rows: list[str], *more: Any, status: int) -> str:
    (folder / "samples.csv").write_text("".join(f"{row}\n" for row in rows))
    ended = canard(folder, "run", PIPELINES / f"{name}.py", folder / "samples.csv", *more, seconds=110)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def lanes(made: Path, folder: Path, count: int) -> list[str]:
    """Return the cells for the two files of so many lanes, all with the same reads and names of reads."""
    for number in range(count):
        for name in ("R1", "R2"):
            shutil.copy(made / f"{name}.fq.gz", folder / f"{number}_{name}.fq.gz")
    return [f"{folder / f'{number}_R1.fq.gz'},{folder / f'{number}_R2.fq.gz'}" for number in range(count)]


def table(file: Path) -> dict[str, dict[str, str]]:
    with file.open(newline="") as opened:
        return {next(iter(row.values())): row for row in csv.DictReader(opened, delimiter="\t")}


def fasta(file: Path) -> dict[str, str]:
    records = file.read_text().split(">")[1:]
    return {record.split("\n")[0]: "".join(record.split("\n")[1:]).upper() for record in records}


# -- viral ------------------------------------------------------------------------------------------------------------


def test_viral_gives_the_sequence_of_the_mutant_and_leaves_out_who_has_too_few_reads(tmp_path, made):
    (tmp_path / "primers.bed").write_text("# of chr1 only\nchr1\t0\t20\tleft\t1\t+\nchr1\t19980\t20000\tright\t1\t-\n")
    few = tmp_path / "few.fq"
    few.write_text("".join(f"@r{n}\n{'ACGTTGCA' * 10}\n+\n{'I' * 80}\n" for n in range(30)))
    rows = ["sample,fastq_1,fastq_2", *(f"mutant,{lane}" for lane in lanes(made, tmp_path, 2)), f"few,{few},"]
    params = ["--param", f"reference={made / 'genome.fa'}", "--param", f"primers={tmp_path / 'primers.bed'}"]
    run(tmp_path, "viral", rows, *params, "--param", "min_mapped=1000", "--param", "min_depth=4", status=0)

    results = tmp_path / "results"
    found = fasta(results / "mutant" / "mutant.consensus.fa")
    assert list(found) == ["mutant chr1", "mutant chr2"]
    for name, text in fasta(made / "genome.fa").items():
        mutant, sequence = data.mutated(text), found[f"mutant {name}"]
        assert len(sequence) == len(mutant)
        assert [at for at, base in enumerate(sequence) if base not in ("N", mutant[at])] == []
        assert sequence.count("N") < len(mutant) / 10
    rows_of_table = table(results / "cohort" / "samples.tsv")
    masked = sum(text.count("N") for text in found.values())
    assert rows_of_table["mutant"] == {
        "sample": "mutant", "reads": "4800", "trimmed": "4800", "mapped": "4800", "length": "30000",
        "N": str(masked), "variants": rows_of_table["mutant"]["variants"], "left out because": "",
    }  # fmt: skip
    assert 50 <= int(rows_of_table["mutant"]["variants"]) <= 60
    assert rows_of_table["few"]["left out because"] == "0 reads mapped, 1000 needed"
    assert not (results / "few").exists()
    assert (results / "cohort" / "consensus.fa").read_bytes() == (
        results / "mutant" / "mutant.consensus.fa"
    ).read_bytes()
    assert {path.name for path in (results / "mutant").iterdir()} == {
        "mutant.consensus.fa", "mutant.vcf.gz", "mutant.vcf.gz.tbi", "mutant.bam", "mutant.bam.bai",
        *(f"mutant.{lane}.fastp.{kind}" for lane in (1, 2) for kind in ("json", "html")),
    }  # fmt: skip


def test_viral_takes_files_that_are_no_pairs_for_what_they_are(tmp_path, made):
    rows = ["sample,fastq_1,fastq_2", f"uneven,{made / 'R1.fq.gz'},{made / 'short_R2.fq.gz'}"]
    said = run(tmp_path, "viral", rows, "--param", f"reference={made / 'genome.fa'}", status=1)
    assert "the two files have 1200 and 600 reads: they are no pairs" in said
    assert "is tried again" not in said


# -- qc ---------------------------------------------------------------------------------------------------------------


def test_qc_finds_files_that_are_not_those_that_were_sent(tmp_path, made):
    first, second, third, fourth = lanes(made, tmp_path, 4)
    sums = [hashlib.md5((made / f"{name}.fq.gz").read_bytes()).hexdigest() for name in ("R1", "R2")]
    run(tmp_path, "qc", [
        "sample,fastq_1,fastq_2,md5_1,md5_2",
        f"good,{first},{sums[0]},{sums[1].upper()}",
        f"good,{second.split(',')[0]},,,",
        f"swapped,{','.join(reversed(third.split(',')))},{sums[0]},{sums[1]}",
        f"uneven,{fourth.split(',')[0]},{made / 'short_R2.fq.gz'},,",
        f"cut,{made / 'cut_R1.fq.gz'},,,",
    ], status=1)  # fmt: skip
    with (tmp_path / "results" / "cohort" / "qc.tsv").open(newline="") as opened:
        rows = list(csv.DictReader(opened, delimiter="\t"))
    assert [(row["sample"], row["lane"], row["reads"], row["bases"], row["mean_length"]) for row in rows[:2]] == [
        ("good", "good.1", "2400", "240000", "100/100"), ("good", "good.2", "1200", "120000", "100"),
    ]  # fmt: skip
    assert {row["sample"]: row["note"] for row in rows[2:]} == dict.fromkeys(
        ("swapped", "uneven", "cut"), "failed: see canard-pipe why"
    )
    why = {sample: canard(tmp_path, "why", sample).stdout for sample in ("swapped", "uneven", "cut")}
    assert f"R2.fq.gz has the md5 sum {sums[1]}, and the sheet says {sums[0]}" in why["swapped"]
    assert "1200 and 600 reads: they are no pairs" in why["uneven"]
    assert "is cut off" in why["cut"]
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"good", "cohort"}


# -- rnaseq -----------------------------------------------------------------------------------------------------------


def test_rnaseq_counts_all_lanes_and_leaves_out_what_does_not_map(tmp_path, made):
    strange = tmp_path / "strange.fq"
    strange.write_text("".join(f"@r{n}\n{'ACGTTGCA' * 10}\n+\n{'I' * 80}\n" for n in range(300)))
    first, second, third = lanes(made, tmp_path, 3)
    rows = ["sample,fastq_1,fastq_2", f"both,{first}", f"both,{second}", f"one,{third}", f"strange,{strange},"]
    run(tmp_path, "rnaseq", rows, "--param", f"transcripts={made / 'genome.fa'}", status=0)
    summary = table(tmp_path / "results" / "cohort" / "samples.tsv")
    fragments = {sample: row["fragments"] for sample, row in summary.items()}
    assert fragments == {"both": "2400", "one": "1200", "strange": ""}
    assert summary["strange"]["left out because"] == "0 of 300 fragments mapped, 5 % and 10 are needed"
    counts = table(tmp_path / "results" / "cohort" / "counts.tsv")
    assert set(counts) == {"chr1", "chr2"}
    for sample in ("both", "one"):
        total = sum(float(row[sample]) for row in counts.values())
        assert total == pytest.approx(int(summary[sample]["mapped"]), abs=1)
        assert (tmp_path / "results" / sample / sample / "quant.sf").is_file()
    assert int(summary["both"]["mapped"]) == 2 * int(summary["one"]["mapped"]) > 1000
