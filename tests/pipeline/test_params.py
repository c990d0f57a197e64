"""Parameters of a pipeline, given as name=value."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest

from canard_pipe.errors import ParameterError, PipelineFileError
from canard_pipe.pipeline.params import Params, parse_params
from canard_pipe.pipeline.rows import FileCheck, InputFile

SPEC = {
    "reference": InputFile,
    "regions": InputFile | None,
    "depth": (int, 30),
    "caller": (Literal["bcftools", "gatk"], "bcftools"),
    "title": "no title",
    "fast": False,
    "site": None,
    "index": (Annotated[InputFile, FileCheck(folder=True)] | None, None),
}


@pytest.fixture(autouse=True)
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ref.fa").write_text(">a\nA\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ref.fa"


def problems(*given: str, spec: Mapping[str, object] = SPEC) -> list[str]:
    with pytest.raises(ParameterError) as caught:
        parse_params(spec, given)
    return [str(problem) for problem in caught.value.problems]


def test_values_are_typed_and_defaults_apply(reference):
    params = parse_params(SPEC, ["reference=ref.fa", "depth= 007", "fast=yes", "title=a = b"])
    assert params.reference == reference
    assert (params.depth, params.caller, params.title, params.fast) == (7, "bcftools", "a = b", True)
    assert (params.site, params.regions, params.index) == (None, None, None)
    assert list(params) == ["reference", "regions", "depth", "caller", "title", "fast", "site", "index"]


def test_files_are_relative_to_the_given_folder_and_checked(tmp_path):
    (tmp_path / "here/x.fa").write_text("x")
    assert parse_params({"r": InputFile}, ["r=x.fa"], tmp_path / "here").r == tmp_path / "here/x.fa"
    assert "there is no such file" in problems("reference=none.fa")[0]
    (tmp_path / "bare").mkdir()
    assert "the folder is empty" in problems("reference=ref.fa", "index=bare")[0]
    assert parse_params({"r": (InputFile, "ref.fa")}, []).r == tmp_path / "ref.fa"


def test_everything_wrong_is_told_at_once():
    found = problems("refrence=ref.fa", "depth=many", "caller=gatk4", "title", "fast=yes", "fast=no")
    assert found == [
        "--param refrence: the pipeline has no such parameter (did you mean 'reference'?)",
        "--param title: 'title' has no = (say --param NAME=VALUE)",
        "--param fast: is given twice (give it once)",
        "--param reference: missing value (say --param reference=VALUE)",
        "--param depth: must be a whole number, not 'many'",
        "--param caller: must be 'bcftools' or 'gatk', not 'gatk4' (did you mean 'gatk'?)",
    ]
    assert "its parameters: none" in problems("x=1", spec={})[0]


def test_params_cannot_be_changed_and_know_their_names():
    params = parse_params({"depth": 30}, [])
    with pytest.raises(AttributeError, match="cannot be changed"):
        params.depth = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del params.depth
    with pytest.raises(AttributeError, match=r"no parameter 'dept'; it has depth"):
        _ = params.dept


def test_params_come_back_from_their_values():
    params = parse_params(SPEC, ["reference=ref.fa"])
    assert Params(dict(params)) == params
    assert copy.deepcopy(params) == params
    assert pickle.loads(pickle.dumps(params)) == params


@pytest.mark.parametrize("spec", [{"a": (int,)}, {"a b": int}, {"_a": int}, {"a": object}])
def test_a_declaration_that_is_none_is_refused(spec):
    if spec == {"a": object}:
        assert parse_params(spec, ["a=x"]).a == "x"
    else:
        with pytest.raises(PipelineFileError):
            parse_params(spec, [])
