"""Two tables: samples, and the units of each (SHEETS rule 17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from canard_pipe.errors import InputError, SheetError
from canard_pipe.pipeline.rows import InputFile, SampleRow
from canard_pipe.pipeline.sheet import SheetOptions, read_sheet


class Unit(SampleRow):
    sample_name: str
    unit_name: str
    fq1: InputFile
    purity: float | None = None
    panel: InputFile | None = None


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name in ("a1", "a2", "b1", "panel"):
        (tmp_path / name).write_text(name)
    return tmp_path


def write(lab: Path, samples: str, units: str) -> tuple[Path, SheetOptions]:
    (lab / "samples.tsv").write_text(samples.replace(",", "\t"))
    (lab / "units.tsv").write_text(units.replace(",", "\t"))
    return lab / "samples.tsv", SheetOptions(units=lab / "units.tsv", on=("sample_name",))


def test_units_are_the_rows_of_their_sample(lab):
    path, options = write(
        lab, "sample_name,group,purity,panel\nA,x,0.5,panel\nB,y,,\n",
        "sample_name,unit_name,fq1\nA,1,a1\nB,1,b1\nA,2,a2\n",
    )  # fmt: skip
    sheet = read_sheet(path, Unit, None, options)
    assert [(sample.key, sample.lines) for sample in sheet.samples] == [("A", (2, 4)), ("B", (3,))]
    assert [row.fq1.name for row in sheet.samples[0].rows] == ["a1", "a2"]
    assert [(row.purity, row.extra) for row in sheet.samples[0].rows] == [(0.5, {"group": "x"})] * 2
    assert {row.panel for row in sheet.samples[0].rows} == {lab / "panel"}
    assert "group\tpurity" in sheet.text
    assert "unit_name\tfq1" in sheet.text


def test_everything_wrong_in_both_tables_is_told_with_its_file(lab):
    path, options = write(
        lab, "sample_name,purity,panel\nA,high,none\nB,,\nB,,\nC,,panel\nD,,panel\n",
        "sample_name,unit_name,fq1\nA,1,a1\nA,2,gone\nE,1,b1\n\nC,1,b1\nD,1,a2\n",
    )  # fmt: skip
    with pytest.raises(SheetError) as caught:
        read_sheet(path, Unit, None, options)
    found = [str(problem).removeprefix(f"{lab}/").split(" (")[0].split(": /")[0] for problem in caught.value.problems]
    assert found == [
        "samples.tsv:2: column purity: must be a number, not 'high'",
        "samples.tsv:2: column panel: there is no such file",
        f"samples.tsv:3: sample 'B' has no units in {lab}/units.tsv",
        "samples.tsv:4: column sample_name: sample 'B' is in line 3 already",
        "samples.tsv:6: column panel: is the same file as in line 5, column panel",
        "units.tsv:3: column fq1: there is no such file",
        f"units.tsv:4: column sample_name: there is no sample 'E' in {lab}/samples.tsv",
    ]


def test_tables_that_cannot_be_joined_are_refused(lab):
    for samples, units, message in (
        ("sample,x\nA,1\n", "sample_name,unit_name,fq1\nA,1,a1\n", "joined by it"),
        ("sample_name,fq1\nA,1\n", "sample_name,unit_name,fq1\nA,1,a1\n", "has this column too"),
    ):
        path, options = write(lab, samples, units)
        with pytest.raises(SheetError, match=message):
            read_sheet(path, Unit, None, options)
    with pytest.raises(InputError):
        SheetOptions(on=("sample_name",))


def test_tables_in_two_folders_need_to_be_told_where_paths_start(lab):
    path, options = write(lab, "sample_name\nA\n", "sample_name,unit_name,fq1\nA,1,a1\n")
    (lab / "meta").mkdir()
    moved = path.rename(lab / "meta" / path.name)
    with pytest.raises(SheetError, match="--folder"):
        read_sheet(moved, Unit, None, options)
    assert len(read_sheet(moved, Unit, None, SheetOptions(units=options.units, on=options.on, folder=lab)).samples) == 1
