"""Sheets as a new user meets them: names that must survive, and planted errors that must all be told."""

from __future__ import annotations

import json

import pytest

from canard_pipe.pipeline.access import open_view
from canard_pipe.report.why import explain, why_json
from tests.cli.pipelines import canard

NAMES = ["007", "1e5", "1.10", "TRUE", "NA", "nan", "a b", "a.b", "a-b", "ä", "x" * 200, "=1+1"]

ECHO = """
from __future__ import annotations
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("echo", rows=Row, key="sample")

@pipeline.sample
def echo(sample, ctx):
    out = ctx.step("echo", lambda: ctx.process(["printf", "%s", sample.key]) / "stdout.log")
    return ctx.publish({"name.txt": out})
"""


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_nasty_names_survive_from_the_sheet_to_everything(tmp_path, delimiter):
    """SHEETS test matrix, BUGS 19: in SQL, folders, JSON, `why` and what a tool is given."""
    (tmp_path / "echo.py").write_text(ECHO)
    sheet = tmp_path / ("s.csv" if delimiter == "," else "s.tsv")
    sheet.write_text(f"sample{delimiter}note\n" + "".join(f"{name}{delimiter}n\n" for name in NAMES))
    ran = canard(tmp_path, "run", "echo.py", sheet.name, "--json")
    assert ran.returncode == 0, ran.stderr
    assert [row["sample"] for row in json.loads(ran.stdout)] == NAMES
    asked = canard(tmp_path, "sql", "--json", "SELECT sample, folder FROM canard_absurd.samples ORDER BY position")
    folders = {row["sample"]: row["folder"] for row in json.loads(asked.stdout)}
    assert list(folders) == NAMES
    for name, folder in folders.items():
        assert (tmp_path / "results" / folder / "name.txt").read_text() == name
    assert len({folder.casefold() for folder in folders.values()}) == len(NAMES)
    with open_view(tmp_path / ".canard", tmp_path) as view:
        for name in NAMES:
            why = why_json(explain(view, name), 0)
            assert (why["sample"], why["state"]) == (name, "done")
    for name in ("=1+1", "x" * 200):  # the ways of the command line too
        assert json.loads(canard(tmp_path, "why", "--json", "--", name).stdout)["sample"] == name


STRICT = """
from __future__ import annotations
from canard_pipe import InputFile, Pipeline, SampleRow

class Row(SampleRow):
    sample: str
    fastq_1: InputFile
    depth: int = 1

pipeline = Pipeline("strict", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    (sample.rows[0].fastq_1.parent / "it-ran").touch()
"""
# Each sheet with its errors: line, column and a word of the rule.
PLANTED: dict[str, tuple[str, list[tuple[int, str | None, str]]]] = {
    "names.csv": (
        "sample,fastq_1\nA,a.fq\n.hidden,b.fq\nA,a.fq\n",
        [(3, "sample", "dot"), (4, None, "line 2")],
    ),
    "cells.csv": (
        "sample,fastq_1,depth\nA,a.fq,3\nB,b.fq,many\nC,c.fq,1,1\nD\n",
        [(3, "depth", "must be a whole number"), (4, None, "cells"), (5, None, "cell")],
    ),
    "files.csv": ("sample,fastq_1\nA,missing.fq\nB,empty.fq\nC,folder\n", [
        (2, "fastq_1", "no such file"), (3, "fastq_1", "empty"), (4, "fastq_1", "folder")]),
    "header.csv": ("sampel,fastq_1\nA,a.fq\n", [(1, None, "not a column")]),
    "quotes.csv": ('sample,fastq_1\n"A,a.fq\nB,b.fq\n', [(2, None, "quote")]),
}  # fmt: skip


def test_five_sheets_with_planted_errors_are_told_whole_and_nothing_runs(tmp_path):
    """BUGS 24, 65: file, line, column, rule and way out of every error of every sheet."""
    (tmp_path / "strict.py").write_text(STRICT)
    for name in ("a.fq", "b.fq", "c.fq"):
        (tmp_path / name).write_text("@r\nA\n+\nI\n")
    (tmp_path / "empty.fq").touch()
    (tmp_path / "folder").mkdir()
    told = 0
    for name, (text, planted) in PLANTED.items():
        (tmp_path / name).write_text(text)
        checked = canard(tmp_path, "check", "strict.py", name, "--json")
        problems = json.loads(checked.stdout)["problems"]
        for line, column, word in planted:
            found = [each for each in problems if each["line"] == line and column in (None, each["column"])]
            said = [each["message"] for each in found if each["hint"] or "must be" in each["message"]]
            assert any(word in message for message in said), (name, line, problems)
            assert all(each["file"].endswith(name) for each in found)
            told += 1
        assert len(problems) == len(planted), (name, problems)
        ran = canard(tmp_path, "run", "strict.py", name)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Traceback" not in ran.stderr
        assert f"{name}:{planted[0][0]}" in ran.stderr
    assert told == 10
    assert not (tmp_path / ".canard").exists()
    assert not (tmp_path / "it-ran").exists()


def lay_out_strict(tmp_path, sheet):
    (tmp_path / "strict.py").write_text(STRICT)
    for name in ("a.fq", "b.fq"):
        (tmp_path / name).write_text("@r\nA\n+\nI\n")
    (tmp_path / "s.csv").write_text(sheet)


def states(tmp_path):
    rows = json.loads(canard(tmp_path, "status", "--json").stdout)
    return {row["sample"]: row["state"] for row in rows}


def test_bad_rows_are_failed_samples_by_option_and_run_when_mended(tmp_path):
    """SHEETS 14: the count adds up; BUGS 24."""
    lay_out_strict(tmp_path, "sample,fastq_1\nA,a.fq\nB,missing.fq\n")
    ran = canard(tmp_path, "run", "strict.py", "s.csv", "--skip-bad-rows")
    assert ran.returncode == 1
    assert states(tmp_path) == {"A": "done", "B": "failed"}
    why = json.loads(canard(tmp_path, "why", "B", "--json").stdout)
    assert why["cause"]["kind"] == "sheet"
    assert "s.csv:3: column fastq_1: there is no such file" in why["error"]
    (tmp_path / "missing.fq").write_text("@r\nA\n+\nI\n")
    assert canard(tmp_path, "run", "strict.py", "s.csv", "--skip-bad-rows").returncode == 0
    assert states(tmp_path) == {"A": "done", "B": "done"}


def test_a_clean_copy_is_written_once_and_reads_as_the_sheet(tmp_path):
    """SHEETS 24."""
    lay_out_strict(tmp_path, "\ufeffsample ;fastq_1\r\n\r\nA;a.fq\r\n")
    done = canard(tmp_path, "check", "strict.py", "s.csv", "--clean-copy", "clean.csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clean.csv").read_text() == f"sample,fastq_1\nA,{tmp_path / 'a.fq'}\n"
    again = canard(tmp_path, "check", "strict.py", "s.csv", "--clean-copy", "clean.csv")
    assert again.returncode == 2
    assert "not overwritten" in again.stderr


UNITS = """
from __future__ import annotations
from canard_pipe import InputFile, Pipeline, SampleRow

class Row(SampleRow):
    name: str
    group: str
    fq1: InputFile

pipeline = Pipeline("units", rows=Row, key="name")

@pipeline.sample
def one(sample, ctx):
    return [row.fq1.name for row in sample.rows]
"""


def test_two_tables_are_joined_and_retry_reads_them_again(tmp_path):
    """SHEETS 17; paths start where --folder says."""
    (tmp_path / "units.py").write_text(UNITS)
    (tmp_path / "tables").mkdir()
    (tmp_path / "reads").mkdir()
    for name in ("1.fq", "2.fq", "3.fq"):
        (tmp_path / "reads" / name).write_text("@r\nA\n+\nI\n")
    (tmp_path / "tables" / "samples.tsv").write_text("name\tgroup\nA\tx\nB\ty\n")
    (tmp_path / "tables" / "units.tsv").write_text("name\tfq1\nA\t1.fq\nA\t2.fq\nB\t3.fq\n")
    line = ["units.py", "tables/samples.tsv", "--units", "tables/units.tsv", "--on", "name", "--folder", "reads"]
    ran = canard(tmp_path, "run", *line)
    assert ran.returncode == 0, ran.stderr
    asked = canard(tmp_path, "sql", "--json", "SELECT result FROM canard_absurd.tasks ORDER BY id")
    assert [json.loads(row["result"]) for row in json.loads(asked.stdout)] == [["1.fq", "2.fq"], ["3.fq"]]
    assert canard(tmp_path, "retry", "A", "--from", "check-inputs").returncode == 0
    assert "as before" in canard(tmp_path, "run", *line, "--dry-run").stdout


def test_standard_input_is_checked_and_a_run_asks_for_a_file(tmp_path):
    """SHEETS 2."""
    lay_out_strict(tmp_path, "")
    good = canard(tmp_path, "check", "strict.py", "-", input="sample,fastq_1\nA,a.fq\n")
    assert good.returncode == 0, good.stderr
    refused = canard(tmp_path, "run", "strict.py", "-", input="sample,fastq_1\nA,a.fq\n")
    assert refused.returncode == 2
    assert "Save the sheet first" in refused.stderr
