"""Items of maps in why, status and logs: told with their sample, never as rows of their own."""

from __future__ import annotations

import json

import pytest

from canard_pipe.errors import TaskSuspended
from canard_pipe.pipeline.access import open_view
from canard_pipe.report import logs, rows, status, why
from tests.report.made import make


@pytest.fixture
def made(tmp_path):
    state = make(tmp_path)
    yield state
    state.database.close()


def mapped(made, key="A"):
    """A sample whose map has a done item, one that failed by a command, and one that is ready."""
    made.plan(key)
    parent = made.claim()
    with pytest.raises(TaskSuspended):
        parent.map("align", "lane", [1, 2, 3], key=lambda number: f"L{number}")
    made.claim("lane").complete("a.bam")
    bad = made.claim("lane")
    folder = made.command(bad, "sort", exit_code=3, stderr="no such contig\n")
    bad.fail(
        "the command bwa ended with exit code 3", fatal=True,
        cause={"kind": "exit", "folder": str(folder.relative_to(made.launch)), "exit_code": 3},
    )
    return folder


def view_of(made):
    made.database.close()
    return open_view(made.folder, made.launch)


def test_status_shows_how_far_a_map_is_and_one_object_per_sample(made):
    mapped(made)
    with view_of(made) as view:
        found = rows.read_status(view)
    (row,) = found.rows
    assert [cell.plain for cell in (status._cell(row, step) for step in status._step_columns(found.rows))] == ["1/3"]
    assert status._progress(row) == "align 1/3"
    told = json.loads(json.dumps(row.as_json()))
    assert told["sample"] == "A"
    assert [(item["item"], item["state"]) for item in told["items"]] == [
        ("L1", "done"), ("L2", "failed"), ("L3", "waiting"),
    ]


def test_why_tells_which_item_failed_with_its_command_stderr_and_folder(made):
    folder = mapped(made)
    with view_of(made) as view:
        found = why.explain(view, "A")
    text = "\n".join(why.why_lines(found, now_us=0))
    assert "align: 3 items: 1 failed, 1 waiting, 1 done" in text
    assert "item align/L2 is failed after 1 failure" in text
    assert "  command: bwa mem ref.fa A.fq" in text
    assert "  | no such contig" in text
    assert f"  folder: {folder}" in text
    (item,) = [item for item in why.why_json(found, 0)["items"] if item["state"] == "failed"]
    assert (item["path"], item["exit_code"], item["stderr"]) == ("align/L2", 3, ["no such contig"])


@pytest.mark.parametrize("step", ["align", "L2", "align/L2", "sort", "align/L2 sort"])
def test_logs_of_a_map_an_item_or_a_step_of_it_are_found(made, step):
    folder = mapped(made)
    with view_of(made) as view:
        if step == "sort":
            step = folder.parent.name
        _, tries = logs.latest_tries(view, "A", step)
    assert tries == [folder]


def test_an_item_is_not_counted_as_a_sample(made):
    mapped(made)
    with view_of(made) as view:
        assert rows.read_status(view).counts == {"sample": {"waiting": 1}}
