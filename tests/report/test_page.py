"""The report: what it says of a made state, that nothing in a name breaks it, and that it stays small and offline."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from canard_pipe.pipeline.access import open_view
from canard_pipe.report.page import figures, timeline
from canard_pipe.report.page.material import read_material
from canard_pipe.report.page.render import GENERATOR, render
from canard_pipe.report.page.trace import COLUMNS, trace_lines
from canard_pipe.report.page.tries import Tried
from canard_pipe.report.rows import PlanRow
from tests.conftest import require_tool
from tests.report.made import make, quoted

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
NASTY = "</script><script>alert('x')</script>\t&amp;"
VOID = {"meta", "input", "link", "br"}


class Page(HTMLParser):
    """The page as a browser's parser reads it: elements, text, and what is not closed rightly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    @property
    def data(self):
        return json.loads(self.scripts[0])


def tried(sample="A", step="align", **given):
    base = Tried(
        "sample", sample, 1, "", "", step, 1, 1, "done", None, 0, None, "local", None, "n1", 2.0, 4 << 30, 1 << 30,
        15.0, 0, 0, None, NOW, NOW + 10 * SECOND, "work/x", False,
    )  # fmt: skip
    return replace(base, **given)


@pytest.fixture
def made(tmp_path):
    state = make(tmp_path)
    yield state
    state.database.close()


def material_of(made):
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        return read_material(view)


def page_of(material) -> Page:
    return Page(render(material, version="0", now_us=NOW))


def test_it_says_what_failed_why_and_where(made):
    for name in ("B", "C"):
        claim = made.failed(name, "the command ended with exit code 137", {"kind": "exit", "exit_code": 137})
        made.command(claim, "call", exit_code=137, stderr=f"reads of {name}\nKilled <b>\n")
    made.plan("A")
    made.claim().complete(None)
    material = material_of(made)
    page = page_of(material)
    assert page.wrong == []
    assert "3 samples: 2 failed , 1 done" in page.words
    assert "2 samples: exit in call, exit code 137 (SIGKILL: killed from outside, mostly out of memory)" in page.words
    assert "raise memory= in the pipeline" in page.words
    assert "reads of B Killed <b>" in page.words
    assert "work/germline/B/call/attempt-1" in page.words
    assert [row[0] for row in page.data["rows"]] == ["B", "C", "A"]
    assert [row[2] for row in page.data["rows"]] == ["failed", "failed", "done"]
    ((label, item, state, ended, count, *_),) = page.data["rows"][0][15]
    assert (page.data["labels"][label], item, state, count) == ("call", "", "failed", 1)
    assert ended.startswith("exit code 137")


def test_the_cause_of_an_item_is_that_of_its_sample(made):
    made.plan("A", max_failures=1)
    claim = made.claim()
    made.database.spawn("align", {}, id="germline/item/L1")
    item = made.claim("align")
    made.sql(
        "INSERT INTO canard_absurd.children VALUES "
        f"({item.seq}, {claim.seq}, {claim.seq}, 1, 'align', 'L1', 0, NULL)"
    )
    made.command(item, "", exit_code=3, stderr="bad lane\n")
    item.fail("ended with exit code 3", fatal=True, cause={"kind": "exit", "exit_code": 3})
    claim.fail("1 of 1 items of align failed", fatal=True, cause={"kind": "items"})
    material = material_of(made)
    (one,) = material.tries
    assert (one.sample, one.item, one.label) == ("A", "align/L1", "align")
    page = page_of(material)
    assert "1 sample: exit in align, exit code 3" in page.words
    assert "bad lane" in page.words


def test_what_a_sheet_holds_cannot_break_it(made):
    claim = made.failed(NASTY, f"it said {NASTY}", {"kind": "exit"})
    made.command(claim, "call")
    made.sql(f"UPDATE canard_absurd.jobs SET step = {quoted(NASTY)}, folder = {quoted(NASTY)}")
    material = material_of(made)
    page = page_of(material)
    assert page.wrong == []
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert page.data["rows"][0][0] == NASTY
    assert "alert('x')" in page.words
    *_, line = trace_lines(material.tries)
    assert len(line.split("\t")) == len(COLUMNS)


def test_it_asks_for_nothing(made):
    """BUGS 73: no address leads out of the page, and its own policy forbids any."""
    made.plan("A")
    page = page_of(material_of(made))
    naming = ("src", "href", "data", "srcset", "action")
    addresses = [value for _, attrs in page.tags for name, value in attrs.items() if name in naming]
    assert addresses
    assert all(value is not None and value.startswith("#") for value in addresses)
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}


def test_settings_versions_and_runs_are_there(made):
    made.plan("A")
    made.sql("""UPDATE canard_absurd.runs SET versions = '{"duckdb": "9.9"}', params = '["genome=g.fa"]'""")
    page = page_of(material_of(made))
    for words in ("duckdb 9.9", "parameter genome g.fa", "node1", "4242"):
        assert words in page.words


def test_the_trace_has_a_line_for_each_try(made):
    claim = made.failed("B", "no", {"kind": "exit"})
    made.command(claim, "call", attempt=1)
    made.command(claim, "call", attempt=2, exit_code=None, signal="SIGKILL")
    head, *lines = trace_lines(material_of(made).tries)
    assert head.split("\t") == list(COLUMNS)
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]
    assert [(row["sample"], row["step"], row["attempt"], row["exit"], row["signal"]) for row in rows] == [
        ("B", "call", "1", "1", ""), ("B", "call", "2", "", "SIGKILL"),
    ]  # fmt: skip
    assert rows[0]["memory_peak_bytes"] == "5000000"
    assert rows[0]["seconds"] == "2"
    assert rows[0]["folder"] == "work/germline/B/call/attempt-1"


def test_a_name_that_looks_like_a_formula_is_text_in_the_trace(made):
    """SHEETS test matrix: ``=1+1`` is inert; numbers stay numbers."""
    made.command(made.failed("=1+1", "no"), "@call", exit_code=-3)
    *_, line = trace_lines(material_of(made).tries)
    row = dict(zip(COLUMNS, line.split("\t"), strict=True))
    assert (row["sample"], row["step"], row["exit"]) == ("'=1+1", "'@call", "-3")


def test_a_row_of_another_pipeline_is_not_in_it(made):
    made.plan("A")
    made.command(made.claim(), "call")
    made.sql("UPDATE canard_absurd.planned SET pipeline = 'other'")
    assert material_of(made).tries == ()


# Figures


def test_steps_are_summed_up_and_what_is_wasted_is_said():
    tries = [
        tried(), tried("B", attempt=1, state="failed", exit_code=1),
        tried("B", attempt=2, started_us=NOW, ended_us=NOW + 30 * SECOND, cpu_seconds=3.0), tried(step="call"),
    ]  # fmt: skip
    tries[1:3] = [replace(each, seq=2) for each in tries[1:3]]
    align, call = figures.by_step(tries)
    assert (align.label, align.commands, align.tries, align.failed) == ("align", 2, 3, 1)
    assert (align.median_seconds, align.longest_seconds, align.total_seconds) == (20.0, 30.0, 50.0)
    assert align.efficiency == pytest.approx((0.75 + 0.05) / 2)
    assert align.remark == "asks for 4 GiB and used 1 GiB at most; asks for 2 cpus and kept 0.8 busy"
    assert call.remark == "asks for 4 GiB and used 1 GiB at most"
    rows = figures.by_row(tries)
    assert (rows[2].tries, rows[2].failed, rows[2].seconds, rows[2].counts) == (2, 1, 40.0, (2,))
    assert rows[2].last[0].attempt == 2


def test_a_step_without_ends_has_no_figures():
    going = tried(state="running", live=True, ended_us=None, cpu_seconds=None, peak_memory_bytes=None)
    (step,) = figures.by_step([going])
    assert (step.median_seconds, step.efficiency, step.most_bytes, step.failed) == (None, None, None, 0)


# Time


def test_idle_time_is_cut_out():
    week = 7 * 86_400 * SECOND
    found = timeline.timeline([tried(), tried(started_us=NOW + week, ended_us=NOW + week + 10 * SECOND)], NOW)
    assert found is not None
    assert found.busy_seconds == 20
    assert [cut.text for cut in found.cuts] == ["6 d 23 h"]
    first, second = found.bars
    assert first.width == pytest.approx(second.width) == pytest.approx((timeline.WIDTH - timeline.CUT) / 2)
    assert second.x + second.width == pytest.approx(timeline.WIDTH)


def test_the_curve_tells_how_many_are_at_work_at_once():
    tries = [tried(seq=number) for number in range(3)]
    found = timeline.timeline([*tries, tried(started_us=NOW + 10 * SECOND, ended_us=NOW + 20 * SECOND)], NOW)
    assert found is not None
    assert found.most == pytest.approx(3, rel=0.02)
    assert len(found.names) == 4 - 1


def test_many_steps_and_rows_stay_few_shapes():
    tries = [tried(str(n), f"s{n % 30}", seq=n, started_us=NOW + n, ended_us=NOW + n + SECOND) for n in range(3000)]
    found = timeline.timeline(tries, NOW)
    assert found is not None
    assert len(found.areas) == timeline.MOST_STEPS + 1
    assert found.areas[-1].label == timeline.OTHERS
    assert (found.bars, found.names) == ((), ())


def test_without_commands_there_is_no_timeline_and_one_at_work_goes_on_until_now():
    assert timeline.timeline([], NOW) is None
    found = timeline.timeline([tried(live=True, state="running", ended_us=None)], NOW + 5 * SECOND)
    assert found is not None
    assert found.busy_seconds == 5


# Ten thousand samples


def many(made, count: int):
    """A material of so many samples with three commands each; every hundredth has failed."""
    made.plan("A")
    one = material_of(made)
    rows, tries = [], []
    for number in range(count):
        bad = number % 100 == 0
        name = f"patient-{number:05d}-tumour"
        error = "the command ended with exit code 3: samtools sort: truncated file. Aborting" if bad else None
        rows.append(PlanRow("sample", "call", name, "failed" if bad else "done", 1, int(bad), 3, error, seq=number + 10,
                            steps=("align", "sort", "call")))  # fmt: skip
        for place, step in enumerate(("align", "sort", "call")):
            start = NOW + (number * 3 + place) * SECOND
            state = "failed" if bad and step == "call" else "done"
            tries.append(tried(name, step, seq=number + 10, started_us=start, ended_us=start + 9 * SECOND, state=state,
                               folder=f"work/{name}/{step}"))  # fmt: skip
    counts = {"sample": {"failed": count // 100, "done": count - count // 100}}
    return replace(one, status=replace(one.status, rows=tuple(rows), counts=counts), tries=tuple(tries))


def test_ten_thousand_samples_are_a_page_of_bounded_size(made):
    html = render(many(made, 10_000), version="0", now_us=NOW)
    assert len(html) < 6_000_000
    page = Page(html)
    assert len(page.data["rows"]) == 10_000
    assert len([1 for tag, attrs in page.tags if tag == "tr" and attrs.get("class") == "row"]) == 100
    assert "100 samples:" in page.words


def test_of_very_many_commands_single_ones_are_left_to_the_trace(made, monkeypatch):
    monkeypatch.setattr("canard_pipe.report.page.render.MOST_COMMANDS", 100)
    page = page_of(many(made, 200))
    assert all(row[15] == [] for row in page.data["rows"])
    assert "single ones are in trace.tsv" in page.words


def test_in_a_browser_it_pages_filters_sorts_and_opens_a_row(made, tmp_path):
    """BUGS 73: with real Chromium, by file://, on ten thousand samples; # of the address says what is chosen."""
    chromium = require_tool("chromium")
    file = tmp_path / "report.html"
    file.write_text(render(many(made, 10_000), version="0", now_us=NOW), encoding="utf-8")
    assert GENERATOR in file.read_text()[:400]

    def opened(choice: str) -> Page:
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
             "--dump-dom", f"file://{file}#{choice}"],
            capture_output=True, text=True, timeout=100, check=True, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        return Page(done.stdout)

    assert "10000 of 10000, page 1 of 100" in opened("").words
    page = opened("state=failed&find=-0990&sort=-0&open")
    assert "1 of 10000" in page.words
    assert page.words.count("patient-09900-tumour") >= 1
    assert "asked for host" in page.words
    assert "4.0 GiB n1" in page.words
