"""The ready-made pipelines, run as a user runs them, against answers known beforehand."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import json
import random
import runpy
import subprocess
from pathlib import Path

import pytest

from tests.conftest import absent, require_tool, shared_data
from tests.program import canard

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "pipelines" / "demo"
GERMLINE = ROOT / "pipelines" / "germline.py"


def sites(vcf: Path) -> list[str]:
    """Return what `bcftools query` prints for contig, position, ref and alt, in the order of `LC_ALL=C sort`."""
    lines = gzip.decompress(vcf.read_bytes()).decode().splitlines(keepends=True)
    fields = [line.split("\t") for line in lines if not line.startswith("#")]
    return sorted("\t".join([field[0], field[1], field[3], field[4]]) + "\n" for field in fields)


def md5(lines: list[str]) -> str:
    return hashlib.md5("".join(lines).encode()).hexdigest()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The demo


def make_demo_data(folder: Path) -> Path:
    return runpy.run_path(str(DEMO / "make_data.py"))["make"](folder)


def test_the_demo_data_are_the_same_each_time(tmp_path):
    make_demo_data(tmp_path / "one")
    make_demo_data(tmp_path / "two")
    made = files_below(tmp_path / "one")
    assert made == files_below(tmp_path / "two")
    assert sum(map(len, made.values())) < 1_000_000


def test_demo_data_that_are_there_are_not_made_again(tmp_path):
    sheet = make_demo_data(tmp_path)
    (tmp_path / "reference.fa").write_text("mine")
    assert make_demo_data(tmp_path) == sheet
    assert (tmp_path / "reference.fa").read_text() == "mine"


def test_the_demo_finds_what_was_planted_and_eider_needs_two_tries(tmp_path):
    if importlib.util.find_spec("pybwa") is None:
        absent("the package pybwa")
    ended = canard(tmp_path, "demo", seconds=110)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = tmp_path / "canard-demo"
    with (folder / "results" / "cohort" / "summary.tsv").open(newline="") as file:
        summary = {row["sample"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(summary) == ["mallard", "teal", "pintail", "eider"]
    assert {sample: (row["found"], row["missed"], row["unexpected"]) for sample, row in summary.items()} == {
        sample: (row["planted"], "0", "0") for sample, row in summary.items()
    }
    tries = sorted(path.name for path in folder.glob("work/**/attempt-2"))
    assert tries == ["attempt-2"]
    assert "results" in ended.stdout

    again = canard(tmp_path, "demo", seconds=110)
    assert again.returncode == 0, again.stdout + again.stderr
    assert not list(folder.glob("work/**/attempt-3"))


# Germline


def run_germline(sheet: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    for tool in ("bwa", "samtools", "bcftools"):
        require_tool(tool)
    genome = shared_data() / "yeast-chrI" / "ref" / "genome.fa"
    return canard(folder, "run", GERMLINE, sheet, "--param", f"reference={genome}", seconds=110)


def write_sheet(path: Path, rows: list[tuple[str, Path]]) -> Path:
    path.write_text("".join(["sample,fastq_1\n", *(f"{sample},{reads}\n" for sample, reads in rows)]))
    return path


@pytest.mark.slow
def test_germline_gives_the_numbers_of_plain_shell(tmp_path):
    data = shared_data()
    expected = json.loads((data / "expected" / "yeast-chrI.json").read_text())["samples"]
    ended = run_germline(data / "yeast-chrI" / "samples.csv", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = tmp_path / "results"
    for sample in ("A", "B", "C"):
        found = sites(results / sample / f"{sample}.vcf.gz")
        assert found == (data / "expected" / "sites" / f"yeast-chrI.{sample}.tsv").read_text().splitlines(keepends=True)
        flagstat = json.loads((results / sample / f"{sample}.flagstat.json").read_text())
        counts = expected[sample]["flagstat"]
        assert {name: flagstat["QC-passed reads"][name] for name in ("total", "mapped")} == {
            name: counts[name] for name in ("total", "mapped")
        }
        assert (len(found), md5(found)) == (expected[sample]["variants"], expected[sample]["sites_md5"])
        assert {path.name for path in (results / sample).iterdir()} == {
            f"{sample}.{ending}" for ending in ("bam", "bam.bai", "flagstat.json", "vcf.gz", "vcf.gz.tbi")
        }
    merged = sites(results / "cohort" / "merged.vcf.gz")
    assert (len(merged), md5(merged)) == (526, "cf9a48a8bb45f247dca7215202d32359")
    assert {path.name for path in (results / "cohort").iterdir()} == {"merged.vcf.gz", "merged.vcf.gz.tbi"}

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*")}
    again = run_germline(data / "yeast-chrI" / "samples.csv", tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*")} == before


@pytest.mark.slow
def test_germline_takes_one_sample_with_two_lanes(tmp_path):
    """Lanes are aligned one by one and merged; a cohort of one sample has a merged file, too."""
    data = shared_data() / "yeast-chrI" / "reads"
    sheet = write_sheet(tmp_path / "samples.csv", [("twin, 1", data / "A.fastq.gz"), ("twin, 1", data / "B.fastq.gz")])
    sheet.write_text(sheet.read_text().replace("twin, 1", '"twin, 1"'))
    ended = run_germline(sheet, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (flagstat,) = tmp_path.glob("results/*/*.flagstat.json")
    assert flagstat.name == "twin, 1.flagstat.json"
    assert json.loads(flagstat.read_text())["QC-passed reads"]["primary"] == 50_000
    (vcf,) = tmp_path.glob("results/*/twin*.vcf.gz")
    assert sites(vcf) == sites(tmp_path / "results" / "cohort" / "merged.vcf.gz")
    header = gzip.decompress(vcf.read_bytes()).decode().partition("#CHROM")[2].splitlines()[0]
    assert header.endswith("FORMAT\ttwin, 1")


def made_lanes(folder: Path, lanes: dict[str, list[int]]) -> Path:
    """Write a genome and, for each sample, lanes of so many reads from it; return the sheet."""
    rng = random.Random(20261201)
    genome = "".join(rng.choice("ACGT") for _ in range(3000))
    (folder / "genome.fa").write_text(f">made\n{genome}\n")
    rows = []
    for sample, counts in lanes.items():
        for lane, count in enumerate(counts, start=1):
            (folder / f"{sample}{lane}").mkdir()
            file = folder / f"{sample}{lane}" / "reads.fastq.gz"  # the same name in each folder, as sequencers do
            starts = [rng.randrange(2900) for _ in range(count)]
            text = "".join(f"@r{n}\n{genome[at:at + 100]}\n+\n{'I' * 100}\n" for n, at in enumerate(starts))
            file.write_bytes(gzip.compress(text.encode(), mtime=0))
            rows.append((sample, file))
    return write_sheet(folder / "samples.csv", rows)


def test_germline_aligns_every_lane_by_itself_and_leaves_none_out(tmp_path):
    """Lanes of one base name are told apart; a lane left out would be silent: counted (PIPELINES 1, step 3)."""
    for tool in ("bwa", "samtools", "bcftools"):
        require_tool(tool)
    sheet = made_lanes(tmp_path, {"A": [200, 100, 50], "B": [80]})
    ended = canard(tmp_path, "run", str(GERMLINE), str(sheet), "--param", f"reference={tmp_path / 'genome.fa'}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for sample, total in (("A", 350), ("B", 80)):
        flagstat = json.loads((tmp_path / "results" / sample / f"{sample}.flagstat.json").read_text())
        assert flagstat["QC-passed reads"]["primary"] == total
    header = subprocess.run(
        ["samtools", "view", "-H", tmp_path / "results" / "A" / "A.bam"], capture_output=True, text=True, check=True
    ).stdout
    groups = [line.split("\t")[1:3] for line in header.splitlines() if line.startswith("@RG")]
    assert groups == [[f"ID:A.{lane}", "SM:A"] for lane in (1, 2, 3)]
    status = json.loads(canard(tmp_path, "status", "--json").stdout)
    assert {row["sample"]: [item["item"] for item in row["items"]] for row in status if row["kind"] == "sample"} == {
        "A": ["A.1", "A.2", "A.3"], "B": ["B"],
    }
