"""The pipelines viral and rnaseq, run as a user runs them, against the numbers of plain shell commands."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require_tool, shared_data
from tests.program import canard
from tests.test_pipelines import sites

PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"
VIRAL, RNASEQ = PIPELINES / "viral.py", PIPELINES / "rnaseq.py"


def run_viral(folder: Path, sheet: Path, reference: Path, primers: Path) -> subprocess.CompletedProcess[str]:
    for tool in ("fastp", "bwa", "samtools", "bcftools"):
        require_tool(tool)
    return canard(
        folder, "run", VIRAL, sheet, "--param", f"reference={reference}", "--param", f"primers={primers}", seconds=220
    )


def bases(fasta: Path) -> str:
    return "".join(line for line in fasta.read_text().splitlines() if not line.startswith(">")).upper()


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened, delimiter="\t"))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_viral_gives_the_numbers_of_plain_shell(tmp_path):
    """PIPELINES 2: no record at all is right for a sample that is the reference itself."""
    data = shared_data()
    expected = json.loads((data / "expected" / "sarscov2.json").read_text())["samples"]
    given = data / "sarscov2"
    ended = run_viral(
        tmp_path, given / "samples.csv", given / "ref" / "NC_045512.2.fasta", given / "ref" / "nCoV-2019.v3.primer.bed"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = tmp_path / "results"
    for name, numbers in expected.items():
        sequence = bases(results / name / f"{name}.consensus.fa")
        assert hashlib.md5(sequence.encode()).hexdigest() == numbers["consensus"]["sequence_md5"]
        assert sites(results / name / f"{name}.vcf.gz") == ["\t".join(site) + "\n" for site in numbers["sites"]]
    rows = table(results / "cohort" / "samples.tsv")
    assert [(row["sample"], int(row["mapped"]), int(row["variants"]), int(row["N"])) for row in rows] == [
        (name, numbers["flagstat"]["primary_mapped"], numbers["variants"], numbers["consensus"]["N"])
        for name, numbers in expected.items()
    ]


def made_project(folder: Path, contig: str) -> tuple[Path, Path, Path]:
    """Write a genome, primers of ``contig``, a sample of it, one of another; return sheet, genome, primers."""
    rng = random.Random(20261201)

    def sequence() -> str:
        return "".join(rng.choice("ACGT") for _ in range(3000))

    genome = sequence()
    (folder / "genome.fa").write_text(f">made\n{genome}\n")
    (folder / "primers.bed").write_text(f"{contig}\t0\t20\tone_LEFT\t1\t+\n{contig}\t480\t500\tone_RIGHT\t1\t-\n")
    rows = []
    for name, source in (("virus", genome), ("control", sequence())):
        pairs = [rng.randrange(2700) for _ in range(600)]
        for mate in (1, 2):
            reads = []
            for number, at in enumerate(pairs):
                read = source[at:at + 100] if mate == 1 else _reverse(source[at + 200:at + 300])
                reads.append(f"@{number}\n{read}\n+\n{'I' * 100}\n")
            (folder / f"{name}_{mate}.fastq.gz").write_bytes(gzip.compress("".join(reads).encode(), mtime=0))
        rows.append(f"{name},{name}_1.fastq.gz,{name}_2.fastq.gz\n")
    sheet = folder / "samples.csv"
    sheet.write_text("sample,fastq_1,fastq_2\n" + "".join(rows))
    return sheet, folder / "genome.fa", folder / "primers.bed"


def _reverse(sequence: str) -> str:
    return sequence.translate(str.maketrans("ACGT", "TGCA"))[::-1]


def test_viral_leaves_a_negative_control_out_and_names_it(tmp_path):
    """PIPELINES 2, steps 3 and 8: a state of its own, and the table says who is missing and why."""
    ended = run_viral(tmp_path, *made_project(tmp_path, "made"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not (tmp_path / "results" / "control").exists()
    rows = {row["sample"]: row for row in table(tmp_path / "results" / "cohort" / "samples.tsv")}
    assert rows["control"]["left out because"] == "0 reads mapped, 100 needed"
    assert (rows["virus"]["mapped"], rows["virus"]["variants"], rows["virus"]["length"]) == ("1200", "0", "3000")
    states = {row["sample"]: row["state"] for row in json.loads(canard(tmp_path, "status", "--json").stdout)}
    assert (states["virus"], states["control"]) == ("done", "skipped")


def test_viral_refuses_primers_of_another_contig(tmp_path):
    """PIPELINES 2, step 4: samtools would clip nothing and exit with 0."""
    ended = run_viral(tmp_path, *made_project(tmp_path, "MN908947.3"))
    assert ended.returncode == 1
    why = canard(tmp_path, "why", "reference").stdout
    assert "names the contig MN908947.3" in " ".join(why.split())
    assert not list((tmp_path / "results").glob("*/*"))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_rnaseq_gives_the_numbers_of_plain_shell(tmp_path):
    """PIPELINES 3: lanes are counted together, the output is a folder."""
    data = shared_data()
    require_tool("salmon")
    expected = json.loads((data / "expected" / "yeast-rnaseq.json").read_text())["samples"]
    (transcripts,) = (data / "yeast-rnaseq" / "ref").glob("*.fa.gz")
    sheet = data / "yeast-rnaseq" / "samples.csv"
    ended = canard(tmp_path, "run", RNASEQ, sheet, "--param", f"transcripts={transcripts}", seconds=220)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = table(tmp_path / "results" / "cohort" / "counts.tsv")
    for name, numbers in expected.items():
        made = tmp_path / "results" / name / name
        told = json.loads((made / "aux_info" / "meta_info.json").read_text())
        assert (told["num_processed"], told["num_mapped"]) == (numbers["num_processed"], numbers["num_mapped"])
        assert sum(float(row[name]) for row in rows) == pytest.approx(numbers["sum_NumReads"], abs=1)
    assert len(rows) == expected["ref1"]["targets_in_quant_sf"]
