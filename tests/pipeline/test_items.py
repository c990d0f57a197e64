"""Maps in a pipeline: ctx.map over lanes and regions (docs/pipelines.md, "Many at once")."""

from __future__ import annotations

import json

import duckdb
import pytest

LANES = """
class Row(SampleRow):
    sample: str
    lane: str
    depth: int = 3

pipeline = Pipeline("lanes", rows=Row, key="sample")

@pipeline.sample(max_failures=2)
def call(sample, ctx):
    lanes = ctx.map("align", align, sample.rows, key=lambda row: row.lane)
    return ctx.step("join", join, lanes, ctx)

def align(row, ctx):
    assert type(row) is Row and row.depth == 3, row
    name = f"{row.sample}/{row.lane}"
    out = ctx.shell(
        "echo align {name} >> {log}; [ ! -e {bad} ] || exit 3; echo {lane} > lane.txt",
        name=name, log=HERE / "counter.txt", bad=HERE / f"bad-{row.sample}-{row.lane}", lane=row.lane,
        outputs=["lane.txt"])
    return out / "lane.txt"

def join(lanes, ctx):
    count("join")
    return " ".join(lane.read_text().strip() for lane in lanes)

@pipeline.cohort(after=call)
def cohort(results, ctx):
    return dict(results)
"""
SHEET = """
    sample,lane
    A,L1
    A,l1
    A,L2
    B,L1
"""


def bad(project, *names, mended=False):
    for name in names:
        file = project.folder / f"bad-{name}"
        if mended:
            file.unlink()
        else:
            file.touch()


def sql(project, text):
    with duckdb.connect(str(project.folder / ".canard" / "state.duckdb"), read_only=True) as connection:
        return connection.execute(text).fetchall()


def results(project):
    return dict(sql(
        project,
        "SELECT s.sample, t.result FROM canard_absurd.samples s JOIN canard_absurd.tasks t ON t.seq = s.task_seq",
    ))


def test_lanes_run_as_tasks_of_their_own_in_folders_below_their_sample(project):
    project.write(LANES, SHEET)
    report = project.run()
    assert (report.exit_status, project.states(report)) == (0, {"A": "done", "B": "done", "cohort": "done"})
    assert json.loads(results(project)["A"]) == "L1 l1 L2"
    assert json.loads(results(project)["cohort"]) == {"A": "L1 l1 L2", "B": "L1"}
    folders = sorted(str(path.relative_to(project.folder)) for path in project.folder.glob("work/**/lane.txt"))
    assert len(folders) == 4
    assert all(folder.startswith(("work/lanes/A/align/", "work/lanes/B/align/")) for folder in folders)
    assert len({folder.casefold() for folder in folders}) == 4
    assert project.run().exit_status == 0
    assert project.counted().count("join") == 2  # nothing was made again


def test_an_item_is_no_row_of_the_plan(project):
    project.write(LANES, SHEET)
    project.run()
    assert sql(project, "SELECT sample FROM canard_absurd.samples ORDER BY ALL") == [("A",), ("B",), ("cohort",)]
    assert sql(project, "SELECT count(*) FROM canard_absurd.planned") == [(3,)]
    assert sql(project, "SELECT sample, path, state FROM canard_absurd.items ORDER BY ALL") == [
        ("A", "align/L1", "done"), ("A", "align/L2", "done"), ("A", "align/l1", "done"), ("B", "align/L1", "done"),
    ]
    assert sql(project, "SELECT step FROM canard_absurd.steps WHERE sample = 'A' ORDER BY ordinal") == [
        ("align",), ("join",),
    ]


@pytest.mark.parametrize("slots", [1, 4])
def test_one_slot_and_one_cpu_are_enough_also_for_nested_maps(project, slots):
    """A parent that waits holds neither: no deadlock."""
    project.write(
        """
        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("nested", rows=Row, key="sample")

        @pipeline.sample
        def call(sample, ctx):
            return ctx.map("lane", lane, [(sample.row, number) for number in range(3)])

        def lane(given, ctx):
            row, number = given
            return sum(ctx.map("region", region, [number, number + 1]))

        def region(number, ctx):
            return ctx.step("n", lambda: int((ctx.shell("echo {n} > n", n=number, outputs=["n"]) / "n").read_text()))
        """,
        "sample\nA\nB\n",
    )
    report = project.run(slots=slots, cpus=1)
    assert report.exit_status == 0, report.samples
    assert json.loads(results(project)["A"]) == [1, 3, 5]
    assert (project.folder / "work/nested/A/lane/0/region/1/n/attempt-1/n").exists()


def test_a_bad_lane_fails_its_sample_and_names_itself_after_the_others_have_ended(project):
    project.write(LANES, SHEET)
    bad(project, "A-L1", "A-L2")
    report = project.run()
    assert project.states(report) == {"A": "failed", "B": "done", "cohort": "blocked"}
    (error,) = [row["error"] for row in report.samples if row["sample"] == "A"]
    assert error.splitlines()[0] == "2 of 3 items of 'align' failed: L1, L2"
    assert error.count("ended with exit code 3") == 2
    assert project.counted().count("align A/l1") == 1
    ((cause,),) = sql(
        project,
        "SELECT a.cause FROM canard_absurd.attempts a JOIN canard_absurd.samples s ON s.task_seq = a.task_seq "
        "WHERE s.sample = 'A' AND a.outcome = 'failed'",
    )
    assert [(each["item"], each["cause"]["kind"]) for each in json.loads(cause)["items"]] == [
        ("L1", "exit"), ("L2", "exit"),
    ]


def test_retry_of_a_sample_runs_its_failed_items_and_keeps_the_others(project):
    project.write(LANES, SHEET)
    bad(project, "A-L1")
    project.run()
    bad(project, "A-L1", mended=True)
    report = project.retry("A")
    assert report.exit_status == 0, report.samples
    assert project.counted().count("align A/l1") == 1
    assert json.loads(results(project)["A"]) == "L1 l1 L2"


def test_retry_of_one_item_leaves_the_other_failed_one_alone(project):
    project.write(LANES, SHEET)
    bad(project, "A-L1", "A-L2")
    project.run()
    bad(project, "A-L1", "A-L2", mended=True)
    before = project.counted()
    report = project.retry("A", item="L1")
    assert project.states(report)["A"] == "failed"
    assert project.counted()[len(before):] == ["align A/L1"]
    (error,) = [row["error"] for row in report.samples if row["sample"] == "A"]
    assert error.startswith("1 of 3 items of 'align' failed: L2")
    assert project.retry("A", item="align/L2").exit_status == 0


def test_from_the_map_on_every_item_is_made_anew(project):
    project.write(LANES, SHEET)
    project.run()
    before = project.counted()
    assert project.retry("A", from_step="align").exit_status == 0
    assert sorted(project.counted()[len(before):]) == ["align A/L1", "align A/L2", "align A/l1", "join"]
    again = project.counted()
    assert project.retry("A", from_step="join").exit_status == 0
    assert project.counted()[len(again):] == ["join"]


def test_one_item_of_a_done_sample_is_made_anew_from_its_map_on(project):
    project.write(LANES, SHEET)
    project.run()
    before = project.counted()
    with pytest.raises(ValueError, match="the item align/L2 is completed; --from align makes it anew"):
        project.retry("A", item="L2")
    assert project.retry("A", item="L2", from_step="align").exit_status == 0
    assert sorted(project.counted()[len(before):]) == ["align A/L2", "join"]
    with pytest.raises(ValueError, match=r"no item is named 'L9'; items: align/L1"):
        project.retry("A", item="L9")


def test_a_changed_sample_has_items_of_its_own(project):
    project.write(LANES, SHEET)
    bad(project, "A-L1")
    project.run()
    bad(project, "A-L1", mended=True)
    project.write_sheet(SHEET.replace("A,L2", "A,L3"))
    report = project.run()
    assert report.exit_status == 0, report.samples
    assert sql(project, "SELECT path FROM canard_absurd.items WHERE sample = 'A' ORDER BY ALL") == [
        ("align/L1",), ("align/L3",), ("align/l1",),
    ]
    assert project.counted().count("align A/l1") == 2
    assert list(project.folder.glob("work/lanes/generation-2/A/align/*/*/attempt-1/lane.txt"))


def test_a_sample_skips_itself_by_an_item(project):
    project.write(
        LANES.replace("    assert", '    if row.lane == "L2":\n        raise SampleSkipped("12 reads")\n    assert'),
        SHEET,
    )
    report = project.run()
    assert project.states(report) == {"A": "skipped", "B": "done", "cohort": "done"}


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        ("lambda row, ctx: 1", "cannot run a lambda"),
        ("nested", "only functions at the top of a file"),
        ("partial(align, 1)", "takes a function, not functools.partial"),
        ("'align'", "takes a function, not 'align'"),
    ],
)
def test_a_function_that_another_process_would_not_find_is_refused(project, fn, message):
    project.write(
        LANES.replace('ctx.map("align", align,', f'ctx.map("align", {fn},').replace(
            "def call(sample, ctx):", "def call(sample, ctx):\n    from functools import partial\n"
                                      "    def nested(row, ctx): ...\n"
        ),
        SHEET,
    )
    report = project.run()
    assert project.states(report)["A"] == "failed"
    (row,) = [row for row in report.samples if row["sample"] == "A"]
    assert message in row["error"]
    assert row["failures"] == 1  # a repeat would not help


def test_a_function_may_stand_in_a_module_that_the_pipeline_file_imports(project):
    (project.folder / "lane_steps.py").write_text("def align(row, ctx):\n    return row.lane.lower()\n")
    project.write(
        "from lane_steps import align\n" + LANES[:LANES.index("def align")]
        + 'def join(lanes, ctx):\n    return " ".join(lanes)\n',
        SHEET.replace("A,l1", "A,L0"),
    )
    assert project.run().exit_status == 0
    assert json.loads(results(project)["A"]) == "l1 l0 l2"


def test_items_of_a_sample_publish_below_its_results_and_not_one_file_twice(project):
    """BUGS 179: three files or an error, never silent replacement."""
    source = LANES.replace("    return out / \"lane.txt\"", """    ctx.publish({NAME: out / "lane.txt"})
    return out / "lane.txt\"""")
    project.write(source.replace("NAME", 'f"{row.lane}-{len(row.sample)}.{row.lane.isupper()}.txt"'), SHEET)
    assert project.run().exit_status == 0
    assert len(list((project.results / "A").iterdir())) == 3
    project.write(source.replace("NAME", '"lane.txt"'), SHEET.replace("B,L1", "B,L3").replace("A,", "C,"))
    report = project.run()
    (row,) = [row for row in report.samples if row["sample"] == "C"]
    assert "2 of 3 items of 'align' failed" in row["error"]
    assert "two tasks have one result C/lane.txt" in row["error"]


def test_a_cohort_after_a_blocked_cohort_is_blocked_too(project):
    project.write(
        LANES + "\n@pipeline.cohort(after=cohort)\ndef last(results, ctx):\n    return len(results)\n", SHEET
    )
    bad(project, "A-L1")
    report = project.run()
    assert project.states(report) == {"A": "failed", "B": "done", "cohort": "blocked", "last": "blocked"}
    assert {row["blocked_by"] for row in report.samples if row["state"] == "blocked"} == {"A"}


def test_a_sample_named_once_has_a_folder_of_its_own(project):
    project.write(
        LANES + "\n@pipeline.once\ndef reference(params, ctx):\n    return ctx.shell('echo x > x', outputs=['x'])\n",
        SHEET.replace("A,", "once,"),
    )
    assert project.run().exit_status == 0
    assert {path.name for path in (project.folder / "work/lanes").iterdir()} == {"%6Fnce", "once", "B"}


def test_once_and_cohort_functions_can_map_too(project):
    project.write(
        """
        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("shared", rows=Row, key="sample")

        @pipeline.once
        def reference(params, ctx):
            return ctx.map("part", part, ["x", "y"])

        @pipeline.sample
        def call(sample, ctx):
            return ctx.result_of(reference)

        @pipeline.cohort(after=call)
        def cohort(results, ctx):
            return ctx.map("part", part, list(results))

        def part(name, ctx):
            return (ctx.shell("echo {name} > part", name=name, outputs=["part"]) / "part").read_text().strip()
        """,
        "sample\nA\nB\n",
    )
    report = project.run()
    assert report.exit_status == 0, report.samples
    assert json.loads(results(project)["A"]) == ["x", "y"]
    assert json.loads(results(project)["cohort"]) == ["A", "B"]


def test_what_was_made_without_a_failed_item_is_made_anew_once_the_item_is_there(project):
    """A handler may go on without some lanes; a retry must not leave them out of what was made meanwhile."""
    source = LANES.replace('    lanes = ctx.map("align", align, sample.rows, key=lambda row: row.lane)\n', """
    from canard_pipe import MapFailed
    try:
        lanes = ctx.map("align", align, sample.rows, key=lambda row: row.lane)
    except MapFailed as failed:
        lanes = list(failed.results.values())
""").replace('return ctx.step("join", join, lanes, ctx)', """joined = ctx.step("join", join, lanes, ctx)
    if (HERE / "bad-end").exists():
        raise ValueError("the end is bad")
    return joined""")
    project.write(source, SHEET)
    bad(project, "A-L1", "end")
    assert project.states(project.run())["A"] == "failed"
    bad(project, "A-L1", "end", mended=True)
    assert project.retry("A").exit_status == 1  # B has failed too
    assert json.loads(results(project)["A"]) == "L1 l1 L2"
    assert project.counted().count("align A/l1") == 1


def test_retry_reaches_the_failed_item_of_an_item(project):
    project.write(
        """
        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("nested", rows=Row, key="sample")

        @pipeline.sample(max_failures=1)
        def call(sample, ctx):
            return ctx.map("lane", lane, ["L1", "L2"])

        def lane(name, ctx):
            return ctx.map("region", region, [f"{name}-x", f"{name}-y"])

        def region(name, ctx):
            ctx.shell("echo {name} >> {log}; [ ! -e {bad} ]", name=name, log=HERE / "counter.txt",
                      bad=HERE / f"bad-{name}")
            return name
        """,
        "sample\nA\n",
    )
    bad(project, "L2-x", "L2-y")
    report = project.run()
    (error,) = [row["error"] for row in report.samples]
    assert error.splitlines() == [
        "1 of 2 items of 'lane' failed: L2", "  L2: 2 of 2 items of 'region' failed: L2-x, L2-y",
    ]
    bad(project, "L2-x", mended=True)
    assert project.retry("A", item="L2-x").exit_status == 1
    bad(project, "L2-y", mended=True)
    before = project.counted()
    assert project.retry("A").exit_status == 0
    assert project.counted()[len(before):] == ["L2-y"]
    assert json.loads(results(project)["A"]) == [["L1-x", "L1-y"], ["L2-x", "L2-y"]]
