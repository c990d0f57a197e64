"""The row model: typing of cells, input files as paths, what is said of wrong values."""

from __future__ import annotations

import copy
import datetime
import enum
import pickle
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator

from canard_pipe.errors import PipelineFileError, SheetError
from canard_pipe.pipeline.rows import FileCheck, InputFile, SampleRow
from canard_pipe.pipeline.sheet import Sheet, SheetOptions, read_sheet


def read(folder: Path, model: type[Any], text: str, **options: object) -> Sheet[Any]:
    file = folder / "samples.csv"
    file.write_text(text)
    return read_sheet(file, model, "sample", SheetOptions(**options))  # type: ignore[arg-type]


def problems(folder: Path, model: type[Any], text: str, **options: object) -> list[str]:
    with pytest.raises(SheetError) as caught:
        read(folder, model, text, **options)
    return [str(problem).rpartition("samples.csv:")[2] for problem in caught.value.problems]


class Lane(SampleRow):
    sample: str
    fastq_1: InputFile
    bam: InputFile | None = None
    fastq_2: InputFile | None = None


def test_an_input_file_is_a_path_everywhere(tmp_path):
    (tmp_path / "a.fastq.gz").write_text("x\n")
    row = read(tmp_path, Lane, "sample,fastq_1\nA,a.fastq.gz\n").samples[0].single
    path = row.fastq_1
    assert isinstance(path, InputFile)
    assert isinstance(path, Path)
    assert (path.name, path.suffix, path.suffixes) == ("a.fastq.gz", ".gz", [".fastq", ".gz"])
    assert path == tmp_path / "a.fastq.gz"
    assert {path: 1}[tmp_path / "a.fastq.gz"] == 1
    assert path.parent / "b" == tmp_path / "b"
    assert f"{path}" == str(tmp_path / "a.fastq.gz")
    assert subprocess.run(["cat", path], capture_output=True, check=True).stdout == b"x\n"
    with path.open() as file:
        assert file.read() == "x\n"
    for again in (pickle.loads(pickle.dumps(path)), copy.deepcopy(path)):
        assert again == path
    assert isinstance(InputFile("a", "b"), InputFile)


def test_reads_are_the_read_files_that_are_there(tmp_path):
    for name in ("1", "2", "b"):
        (tmp_path / name).write_text("x")
    one = read(tmp_path, Lane, "sample,fastq_1,bam\nA,1,b\n").samples[0].single
    assert one.reads == [tmp_path / "1"]
    two = read(tmp_path, Lane, "sample,fastq_2,fastq_1\nA,2,1\n").samples[0].single
    assert two.reads == [tmp_path / "1", tmp_path / "2"]

    class Other(SampleRow):
        read2: InputFile
        fq1: Annotated[InputFile, FileCheck()]
        reads_long: InputFile | None = None
        reference: InputFile
        readme: str

    assert Other.read_fields == ("read2", "fq1", "reads_long")
    assert set(Other.file_fields) == {"read2", "fq1", "reads_long", "reference"}


def test_a_row_comes_back_from_its_values(tmp_path):
    """The engine stores a row's values, files as plain paths; no file is looked at again."""
    (tmp_path / "1").write_text("x")
    row = read(tmp_path, Lane, "sample,fastq_1,batch\nA,1,b\n").samples[0].single
    (tmp_path / "1").unlink()
    values = {name: Path(value) if isinstance(value, Path) else value for name, value in row.model_dump().items()}
    assert values["fastq_1"] == tmp_path / "1"
    again = Lane.model_validate(values)
    assert again == row
    assert again.extra == {"batch": "b"}
    assert isinstance(again.fastq_1, InputFile)
    assert Lane.model_validate_json(row.model_dump_json()) == row


def test_a_row_cannot_be_changed():
    row = Lane(sample="A", fastq_1=InputFile("x"))
    with pytest.raises(ValidationError):
        row.sample = "B"
    with pytest.raises(ValidationError):
        Lane(sample="A", fastq_1=InputFile("x"), fastq2="y")  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("name", ["extra", "reads"])
def test_names_that_rows_have_already_are_refused(name):
    with pytest.raises(PipelineFileError, match=f"{name} is taken"):
        type("Bad", (SampleRow,), {"__annotations__": {name: str}, "__module__": __name__})


class Kind(enum.Enum):
    TUMOUR = "tumour"
    NORMAL = "normal"


class Typed(SampleRow):
    sample: str
    code: str = "none"
    depth: int | None = None
    purity: float | None = Field(None, ge=0, le=1)
    kind: Kind = Kind.NORMAL
    strand: Literal["forward", "reverse", "auto"] = "auto"
    paired: bool | None = None
    taken: datetime.date | None = None
    price: Decimal | None = None
    barcode: Annotated[str, Field(pattern=r"^[ACGT]+$")] | None = None
    either: int | Literal["all"] | None = None


def test_text_stays_text_and_is_typed_only_where_asked(tmp_path):
    """SHEETS rule 7, BUGS 28."""
    text = (
        "sample,code,depth,purity,kind,strand,paired,taken,price,barcode,either\n"
        "10091,007,007,1e-1,tumour,,yes,2026-03-31,1.10,ACGT,all\n"
        "0,0,,,,,,,,,12\n"
    )
    one, two = (sample.single for sample in read(tmp_path, Typed, text).samples)
    assert (one.sample, one.code, one.depth, one.purity, one.kind, one.strand) == (
        "10091", "007", 7, 0.1, Kind.TUMOUR, "auto",
    )  # fmt: skip
    assert (one.paired, one.taken, str(one.price), one.barcode, one.either) == (
        True, datetime.date(2026, 3, 31), "1.10", "ACGT", "all",
    )  # fmt: skip
    assert (two.sample, two.code, two.depth, two.paired, two.either) == ("0", "0", None, None, 12)
    assert two.kind is Kind.NORMAL


def test_wrong_values_are_told_in_plain_words_all_at_once(tmp_path):
    """Line, column, rule, way out; no word of the typing library."""
    text = (
        "sample,depth,purity,kind,strand,paired,taken,price,barcode,either\n"
        "A,many,2,tumor,forwards,maybe,31.3.2026,x,ACGU,some\n"
        "B,1.5,-0.1,,,,,,,\n"
        ",,,,,,,,,1\n"
    )
    found = problems(tmp_path, Typed, text)
    assert found == [
        "2: column depth: must be a whole number, not 'many'",
        "2: column purity: must be at most 1.0, not '2'",
        "2: column kind: must be 'tumour' or 'normal', not 'tumor' (did you mean 'tumour'?)",
        "2: column strand: must be 'forward', 'reverse' or 'auto', not 'forwards' (did you mean 'forward'?)",
        "2: column paired: must be true or false (also yes, no, 1, 0), not 'maybe'",
        "2: column taken: must be a date such as 2026-03-31, not '31.3.2026'",
        "2: column price: must be a number, not 'x'",
        "2: column barcode: must match the pattern ^[ACGT]+$, not 'ACGU'",
        "2: column either: must be a whole number, not 'some' or must be 'all', not 'some'",
        "3: column depth: must be a whole number, not '1.5'",
        "3: column purity: must be at least 0.0, not '-0.1'",
        "4: column sample: missing value (samples are named by this column)",
    ]
    for word in ("input", "validation", "pydantic", "string", "parse"):
        assert word not in "\n".join(found).casefold()


def test_empty_cells_are_none_default_or_missing(tmp_path):
    """SHEETS rule 8: empty means empty, NA is a text unless the pipeline lists it."""

    class Cells(SampleRow):
        sample: str
        may: str | None
        must: str
        has: str = "default"

    row = read(tmp_path, Cells, "sample,may,must,has\nNA,,x, \n").samples[0].single
    assert (row.sample, row.may, row.must, row.has) == ("NA", None, "x", "default")
    row = read(tmp_path, Cells, "sample,may,must,has\nNA,NA,None,.\n").samples[0].single
    assert (row.may, row.must, row.has) == ("NA", "None", ".")
    row = read(tmp_path, Cells, "sample,may,must,has\nNA,NA,x,.\n", missing=("NA", ".")).samples[0].single
    assert (row.sample, row.may, row.has) == ("NA", None, "default")
    assert problems(tmp_path, Cells, "sample,may,must,has\nA,x,,y\nB,,NA,\n", missing=("NA",)) == [
        "2: column must: missing value", "3: column must: missing value",
    ]  # fmt: skip


def test_a_required_column_that_is_not_there_is_told_once(tmp_path):
    found = problems(tmp_path, Typed, "code,depth\nx,1\ny,b\n")
    assert [problem.split(" (")[0] for problem in found] == [
        "1: column sample: the sheet has no such column", "3: column depth: must be a whole number, not 'b'",
    ]  # fmt: skip


def test_columns_may_have_other_names_than_fields(tmp_path):
    class Aliased(SampleRow):
        sample: str = Field(alias="Sample Name")
        depth: int = Field(validation_alias=AliasChoices("Mean Depth", "cov"))

    assert read(tmp_path, Aliased, "sample name,COV\nA,3\n").samples[0].single.depth == 3
    assert read(tmp_path, Aliased, "sample,depth\nA,3\n").samples[0].key == "A"
    assert problems(tmp_path, Aliased, "Sample Name,cov\nA,x\n") == ["2: column cov: must be a whole number, not 'x'"]


def test_validators_of_the_pipeline_speak_for_themselves(tmp_path):
    class Strict(SampleRow):
        sample: str
        umi: str | None = None
        tags: tuple[str, ...] = ()
        plain: list[str] | None = None

        @field_validator("tags", mode="before")
        @classmethod
        def split(cls, text: object) -> object:
            return text.split(";") if isinstance(text, str) else text

        @field_validator("umi")
        @classmethod
        def long_enough(cls, text: str) -> str:
            if text == "bug":
                raise KeyError("bug")
            if len(text) < 4:
                raise ValueError("a UMI has at least 4 letters")
            return text

        @model_validator(mode="after")
        def not_both(self) -> Strict:
            if self.umi and self.tags:
                raise ValueError("give umi or tags, not both")
            return self

    assert read(tmp_path, Strict, "sample,tags\nA,x;y\n").samples[0].single.tags == ("x", "y")
    found = problems(tmp_path, Strict, "sample,umi,tags,plain\nA,ACG,,\nB,ACGT,x,\nC,bug,,\nD,,,a\n")
    assert found[:2] == ["2: column umi: a UMI has at least 4 letters", "3: give umi or tags, not both"]
    assert found[2].startswith("4: the row model failed: KeyError: 'bug'")
    assert found[3].startswith("5: column plain: 'a' is one text")


def test_a_file_or_a_text(tmp_path):
    """SHEETS rule 16: accessions and addresses are texts for a step to fetch."""

    class Either(SampleRow):
        sample: str
        reads_1: InputFile | str

    (tmp_path / "x.fq").write_text("x")
    here, far = (s.single for s in read(tmp_path, Either, "sample,reads_1\nA,x.fq\nB,SRR1\n").samples)
    assert here.reads == [tmp_path / "x.fq"]
    assert far.reads_1 == "SRR1"


def test_a_type_that_is_not_known_is_told(tmp_path):
    """A class may name what is defined below it; what is defined nowhere is a mistake of the pipeline file."""

    class Late(SampleRow):
        sample: str
        fastq_1: Below  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(PipelineFileError, match="a type in Late is not known"):
        read(tmp_path, Late, "sample,fastq_1\nA,x\n")
    globals()["Below"] = InputFile
    try:
        (tmp_path / "x").write_text("x")
        assert read(tmp_path, Late, "sample,fastq_1\nA,x\n").samples[0].single.reads == [tmp_path / "x"]
    finally:
        del globals()["Below"]


def test_file_checks_are_for_files_only():
    with pytest.raises(TypeError, match="InputFile fields only"):

        class Wrong(SampleRow):
            sample: Annotated[str, FileCheck()]
