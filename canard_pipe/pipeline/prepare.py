"""Everything that is checked before anything starts: pipeline file, tools, parameters, sheet, input files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from canard_pipe.errors import InputError, ParameterError, PipelineFileError, Problem, SheetError
from canard_pipe.pipeline import fingerprint, planning
from canard_pipe.pipeline.fingerprint import Fingerprint
from canard_pipe.pipeline.loading import LoadedPipeline, load_pipeline
from canard_pipe.pipeline.params import Params, parse_params
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheet import RefusedSample, SampleRows, Sheet, SheetOptions, read_sheet
from canard_pipe.pipeline.sheets.folders import assign_folders

LONGEST_ID = 256  # of a task (L15)
_GENERATION = 6  # characters kept free for "/" and the generation


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked pipeline with its parameters and sheet: it can start."""

    loaded: LoadedPipeline
    params: Params
    sheet: Sheet[SampleRow]

    def notes(self) -> list[str]:
        """Return what the user should know about the sheet, a sentence each."""
        rows, samples = self.sheet.row_count, len(self.sheet.samples) + len(self.sheet.refused)
        head = f"{self.sheet.path}: {samples} sample{'s' * (samples != 1)} in {rows} row{'s' * (rows != 1)}"
        refused = [f"{each.key} cannot run: {problem}" for each in self.sheet.refused for problem in each.problems]
        return [head, *self.sheet.notes, *refused]


def prepare(
    pipeline_file: Path, sheet_file: Path, params: Sequence[str], *, folder: Path, sheet: SheetOptions | None = None
) -> Prepared:
    """Load and check all that a run needs; files in ``params`` are relative to ``folder``.

    Raises InputError and its kin with everything that is wrong.
    """
    loaded = load_pipeline(pipeline_file)
    pipeline = loaded.pipeline
    problems: list[Problem] = []
    missing = pipeline.missing_tools()
    if missing:
        message = f"needs {', '.join(missing)}, not found on PATH"
        problems.append(Problem(str(pipeline_file), None, None, message, "install it, or activate its environment"))
    values, found = Params(), None
    try:
        values = parse_params(pipeline.params, params, folder)
    except InputError as error:
        problems += _problems(error)
    longest = LONGEST_ID - _GENERATION - len(f"{pipeline.name}/sample/")
    try:
        options = replace(
            sheet or SheetOptions(), max_key_length=longest, missing=pipeline.missing, reader=pipeline.reader
        )
        found = read_sheet(sheet_file, pipeline.rows, pipeline.key, options)
    except SheetError as error:
        problems += error.problems
    if found is None:
        raise SheetError(problems)
    if problems:
        raise PipelineFileError(problems) if missing else ParameterError(problems)
    return Prepared(loaded, values, found)


def wanted_tasks(
    reading: planning.Reading, prepared: Prepared, known: Mapping[str, planning.Known], *, compare_content: bool = False
) -> list[planning.Wanted]:
    """Return the once and sample tasks that pipeline, parameters and sheet ask for.

    ``known``: the samples of the last plan by key; they keep their folders. ``compare_content``: their files are told
    apart by their bytes.
    """
    pipeline, codec = prepared.loaded.pipeline, reading.codec
    params = fingerprint.of_params(param_values(prepared.params), codec.root)
    shared = Fingerprint((), params, ())
    wanted = [
        planning.Wanted(
            once, once.name, planning.shared_folder(pipeline, "once", once.name), 0, None, codec.encode({}), shared
        )
        for once in pipeline.of_kind("once")
    ]
    function = pipeline.sample_function
    if function is None:
        return wanted
    samples: list[SampleRows[SampleRow] | RefusedSample] = [*prepared.sheet.samples, *prepared.sheet.refused]
    samples.sort(key=lambda sample: sample.lines[0])
    folders = assign_folders([sample.key for sample in samples], {key: row.folder for key, row in known.items()})
    for position, sample in enumerate(samples, start=1):
        given: dict[str, Any] = {
            "key": sample.key,
            "parts": list(sample.parts),
            "lines": list(sample.lines),
            "folder": folders[sample.key],
        }
        files: list[Path] = []
        if isinstance(sample, RefusedSample):  # its task fails with what is wrong (context.py)
            given["refused"] = [astuple(problem) for problem in sample.problems]
            cells = fingerprint.of_rows([{"rows that are wrong": given["refused"]}], codec.root)
        else:
            given["rows"] = [planning.row_value(row) for row in sample.rows]
            cells = fingerprint.of_rows(given["rows"], codec.root)
            files = [path for row in sample.rows for path in row.files]
        made_from = Fingerprint(cells, params, _signatures(files, known.get(sample.key), content=compare_content))
        wanted.append(
            planning.Wanted(
                function, sample.key, folders[sample.key], position, sample.lines[0], codec.encode(given), made_from,
                tuple(path.name for path in files),
            )
        )
    return wanted


def _signatures(
    files: Sequence[Path], known: planning.Known | None, *, content: bool
) -> tuple[fingerprint.Signature, ...]:
    before = fingerprint.signatures_in(known.made_from) if files and known is not None else []
    if len(before) != len(files):
        before = []
    return tuple(fingerprint.signature_since(path, was, content=content) for path, was in zip_longest(files, before))


def param_values(params: Params) -> dict[str, Any]:
    """Return the parameters as a storable dict; files as absolute paths."""
    return {name: params[name].absolute() if isinstance(params[name], Path) else params[name] for name in params}


def _problems(error: InputError) -> list[Problem]:
    found = getattr(error, "problems", None)
    return list(found) if found else [Problem("--param", None, None, str(error))]
