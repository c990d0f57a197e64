"""Runs of samples that fail in different ways: the cause as data, how often each is tried, limits of a run."""

from __future__ import annotations

import json

import duckdb
import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline import policy

WAYS = """
class Row(SampleRow):
    sample: str
    how: str

pipeline = Pipeline("ways", rows=Row, key="sample", tries=Tries({"exit": 2, 75: 3}, first="0.01s", longest="0.02s"))

@pipeline.sample
def one(sample, ctx):
    text = "echo {key} >> {counter}; " + sample.row.how
    ctx.step("work", lambda: ctx.shell(text, key=sample.key, counter=HERE / "counter.txt", outputs=["out.txt"]))
"""


def causes(project) -> dict[str, list[dict[str, object]]]:
    """The causes of the attempts of each sample, in their order."""
    with duckdb.connect(str(project.folder / ".canard" / "state.duckdb"), read_only=True) as con:
        rows = con.execute(
            "SELECT s.sample, a.cause FROM canard_absurd.samples s JOIN canard_absurd.attempts a USING (task_seq)"
            " WHERE a.outcome = 'failed' ORDER BY a.attempt"
        ).fetchall()
    found: dict[str, list[dict[str, object]]] = {}
    for sample, cause in rows:
        found.setdefault(sample, []).append(json.loads(cause))
    return found


def test_every_failure_has_its_cause_and_its_number_of_tries(project):
    """BUGS 38, 39: exactly as many executions as declared, by cause."""
    project.write("from canard_pipe import Tries\n" + WAYS, """
        sample,how
        plain,exit 1
        busy,exit 75
        absent,no-such-tool
        empty,: > out.txt
        missing,true
        fine,echo x > out.txt
    """)  # fmt: skip
    report = project.run()
    assert report.exit_status == 1
    kinds = {sample: [cause["kind"] for cause in found] for sample, found in causes(project).items()}
    assert kinds == {
        "plain": ["exit"] * 2, "busy": ["exit"] * 3, "absent": ["not_found"], "empty": ["output"] * 3,
        "missing": ["output"] * 3,
    }  # fmt: skip
    executed = project.counted()
    assert {sample: executed.count(sample) for sample in kinds} == {name: len(found) for name, found in kinds.items()}
    errors = {row["sample"]: str(row["error"]) for row in report.samples}
    assert "not tried again: 3 of 3 tries allowed by tries= for exit code 75 are used" in errors["busy"]
    assert causes(project)["missing"][0]["problems"] == ["the output out.txt is missing"]


def test_a_sample_that_needs_ever_more_memory_gets_it_beyond_max_failures(project):
    project.write("""
        import sys
        from canard_pipe import Escalate

        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("hog", rows=Row, key="sample", tries=Tries(first="0.01s"))
        HOG = "x = bytearray(220 << 20); import time; time.sleep(int(sys.argv[1]) > 250 << 20 or 30)"

        @pipeline.sample(max_failures=2)
        def one(sample, ctx):
            memory = Escalate("40M", max="1G")
            ctx.step("hog", lambda: ctx.shell("{python} -c {hog} $CANARD_MEMORY_BYTES", memory=memory,
                                              python=sys.executable, hog="import sys; " + HOG))
    """.replace("import sys\n", "import sys\n        from canard_pipe import Tries\n", 1), "sample\nA\n")  # fmt: skip
    assert project.run().exit_status == 0
    assert [cause["kind"] for cause in causes(project)["A"]] == ["oom"] * 3, "40, 80, 160, then 320 MiB"


def test_an_exception_of_a_call_is_a_fact_with_the_users_frame(project):
    project.write("""
        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("call", rows=Row, key="sample", tries=1)

        def shape(text):
            return int(text)

        @pipeline.sample
        def one(sample, ctx):
            ctx.step("shape", lambda: ctx.call(shape, "many"))
    """, "sample\nA\n")  # fmt: skip
    report = project.run()
    (cause,) = causes(project)["A"]
    line = next(n for n, text in enumerate(project.pipeline.read_text().splitlines(), 1) if "int(text)" in text)
    assert (cause["kind"], cause["type"]) == ("exit", "ValueError")
    assert cause["where"] == f"{project.pipeline}:{line} in shape"
    assert "ValueError: invalid literal" in str(report.samples[0]["error"])


LIMITED = """
class Row(SampleRow):
    sample: str

pipeline = Pipeline("limited", rows=Row, key="sample", limits={"ftp": 1})

@pipeline.sample
def one(sample, ctx):
    script = "mkdir ../../../../../lock || exit 3; sleep 0.1; rmdir ../../../../../lock"
    ctx.step("fetch", lambda: ctx.process(["sh", "-c", script], cpus=0.1, limits={"ftp": NEEDS}))
"""


def test_a_named_limit_bounds_what_runs_at_once(project):
    project.write(LIMITED.replace("NEEDS", "1"), "sample\n" + "".join(f"s{n}\n" for n in range(6)))
    assert project.run().exit_status == 0


def test_a_step_beyond_its_limit_is_refused_at_once_unless_the_run_gives_more(project):
    project.write(LIMITED.replace("NEEDS", "2"), "sample\nA\n")
    report = project.run()
    assert report.exit_status == 1
    assert "2 of limit ftp" in str(report.samples[0]["error"])
    assert [cause["kind"] for cause in causes(project)["A"]] == ["budget"]
    project.write_sheet("sample\nB\n")
    assert project.run(limits={"ftp": 2}).exit_status == 0


def test_a_limit_that_nobody_defined_names_the_way_out(project):
    project.write(LIMITED.replace(', limits={"ftp": 1}', "").replace("NEEDS", "1"), "sample\nA\n")
    assert "--limit NAME=N" in str(project.run().samples[0]["error"])


def test_the_size_of_a_samples_input_scales_what_it_asks_for(project):
    project.write("""
        from canard_pipe import Escalate

        class Row(SampleRow):
            sample: str
            data: InputFile

        pipeline = Pipeline("sized", rows=Row, key="sample")

        @pipeline.sample
        def one(sample, ctx):
            def asked(**options):
                folder = ctx.process(["sh", "-c", "echo $CANARD_MEMORY_BYTES"], **options)
                return int((folder / "stdout.log").read_text())
            scaled = ctx.step("scaled", lambda: asked(memory=1024 * sample.input_bytes))
            least = ctx.step("least", lambda: asked(memory=Escalate(3 * sample.input_bytes, least="2M", max="4M")))
            most = ctx.step("most", lambda: asked(memory=Escalate(2**20 * sample.input_bytes, least="2M", max="4M")))
            (HERE / "asked.txt").write_text(f"{sample.input_bytes} {scaled} {least} {most}")
    """, "sample,data\nA,a.txt\nA,b.txt\n")  # fmt: skip
    (project.folder / "a.txt").write_text("x" * 1000)
    (project.folder / "b.txt").write_text("x" * 24)
    assert project.run().exit_status == 0
    assert (project.folder / "asked.txt").read_text() == f"1024 {1 << 20} {2 << 20} {4 << 20}"


@pytest.mark.parametrize("wrong", ["tries=0", "limits={'ftp': 0}", "limits='ftp'"])
def test_a_wrong_policy_in_the_pipeline_file_is_told_before_anything_runs(project, wrong):
    project.write(LIMITED.replace("limits={\"ftp\": 1}", wrong).replace("NEEDS", "1"), "sample\nA\n")
    with pytest.raises(InputError):
        project.run()
    assert not (project.folder / "work").exists()


def test_mistakes_in_the_file_are_final_and_other_exceptions_are_not():
    assert issubclass(NameError, policy.FINAL)
    assert not issubclass(ZeroDivisionError, policy.FINAL)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("cut.gz", "head -c 3000000 /dev/urandom | gzip -1 | head -c 2000000 > cut.gz || true", "cut off"),
        ("no.vcf", "echo chr1 > no.vcf", "cannot be opened"),
        ("A.bam", "printf '%b' '\\x1f\\x8b\\x08\\x04' > A.bam", "not"),
        ("quant", "mkdir quant", "empty folder"),
        ("half.json", "printf '{' > half.json", "not valid JSON"),
        ("pipe", "mkfifo pipe", "neither a file nor a folder"),
    ],
)
def test_outputs_are_looked_into_before_the_step_is_saved(project, name, text, says):
    """BUGS 20, 25: at the command that made them, not only where they are published."""
    project.write("""
        class Row(SampleRow):
            sample: str
            name: str

        pipeline = Pipeline("looks", rows=Row, key="sample", tries=1)

        @pipeline.sample
        def one(sample, ctx):
            ctx.step("make", lambda: ctx.process(["bash", "-c", (HERE / "make.sh").read_text()],
                                                 outputs=[sample.row.name]))
    """, f"sample,name\nA,{name}\n")  # fmt: skip
    (project.folder / "make.sh").write_text(text)
    report = project.run()
    (cause,) = causes(project)["A"]
    assert cause["kind"] == "output"
    assert says in str(report.samples[0]["error"])
