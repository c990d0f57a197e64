"""The live view and its plain form: one line per event, counts, running commands, failures, time left."""

from __future__ import annotations

import io

from rich.console import Console

from canard_pipe.report.live import LiveView, PlainLines, Progress, picture
from canard_pipe.report.summary import summary_lines

NOW_US = 1_800_000_000_000_000
SNAPSHOT = {
    "pipeline": "germline", "counts": {"done": 2, "running": 2, "waiting": 6},
    "running": [
        {"sample": "A", "step": "align", "command": "bwa mem " + "x" * 300, "state": "running",
         "started_at": NOW_US - 75_000_000, "memory_bytes": 3 * 1024**3},
        {"sample": "B", "step": "call", "command": "bcftools call", "state": "waiting", "started_at": NOW_US},
    ],
}  # fmt: skip


def plain(**options):
    written: list[str] = []
    clock = [NOW_US]
    return written, clock, PlainLines(written.append, lambda: clock[0], **options)


def progress(ended, seconds=0, **saved):
    """A run that found so many samples at their end, ``seconds`` ago, and has saved steps since."""
    made = Progress(NOW_US - seconds * 1_000_000)
    made.seen({"done": ended})
    for step, count in saved.items():
        for _ in range(count):
            made.saved(step)
    return made


def drawn(renderable, width=100):
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(renderable)
    return stream.getvalue()


def test_each_event_is_one_line_with_its_time():
    written, _, view = plain()
    view.planned(["2 new: A, B"])
    view.step("sample", "A", "align")
    view.ended("sample", "A", "done", "")
    view.ended("sample", "B", "waiting", "exit code 1\nmore of it")
    view.ended("once", "reference", "failed", "no \x1b[31mgenome")
    view.note("a note")
    assert [line[21:] for line in written] == [
        "2 new: A, B", "A: step align is saved", "A: done", "B: failed, is tried again: exit code 1",
        "reference (once): failed: no \\x1b[31mgenome", "a note",
    ]  # fmt: skip
    assert all(line[:4] == "2027" and len(line.splitlines()) == 1 for line in written)


def test_in_a_log_file_the_counts_are_told_now_and_then():
    written, clock, view = plain(summary_seconds=60)
    view.snapshot(SNAPSHOT)
    assert written == []
    clock[0] += 61_000_000
    view.snapshot(SNAPSHOT)
    view.snapshot(SNAPSHOT)
    assert [line[21:] for line in written] == [
        "so far: 2 running, 6 waiting, 2 done; steps: align 1 at work · call 1 at work; now A align, B call"
    ]


def test_the_picture_has_counts_commands_time_memory_failures_and_time_left():
    text = drawn(picture(SNAPSHOT, ["C: failed: exit code 1"], NOW_US, NOW_US - 100_000_000, progress(0, 100)))
    assert "germline  1 min 40 s  2 running, 6 waiting, 2 done  about 6 min 40 s left" in text
    assert "1 min 15 s" in text
    assert "3 GiB" in text
    assert "waits" in text
    assert "C: failed: exit code 1" in text


def test_steps_are_counted_saved_and_at_work():
    text = drawn(picture(SNAPSHOT, [], NOW_US, NOW_US, progress(0, align=2, call=1)))
    assert "steps: align 2 saved, 1 at work · call 1 saved, 1 at work" in text
    many = progress(0, **{f"s{number}": 1 for number in range(11)})
    assert many.steps_line([]).endswith("s7 1 saved · and 3 more")


def test_the_summary_of_a_log_file_has_steps_and_the_time_left():
    written, clock, view = plain(summary_seconds=60)
    view.step("sample", "A", "align")
    view.snapshot({"counts": {"waiting": 10}})
    clock[0] += 100_000_000
    view.snapshot(SNAPSHOT)
    assert written[-1].endswith(
        "so far: 2 running, 6 waiting, 2 done; steps: align 1 saved, 1 at work · call 1 at work; now A align, B call; "
        "about 6 min 40 s left"
    )


def test_the_time_left_counts_no_rows_that_this_run_leaves_alone():
    counts = {"done": 2, "running": 2, "retired": 50, "changed": 10, "blocked": 8}
    text = drawn(picture({"pipeline": "p", "counts": counts}, [], NOW_US, NOW_US - 100_000_000, progress(68, 100)))
    assert "about 1 min 40 s left" in text


def test_the_picture_fits_a_narrow_terminal_and_never_wraps_a_command():
    lines = drawn(picture(SNAPSHOT, [], NOW_US, NOW_US, progress(0)), width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum("bwa mem" in line for line in lines) == 1
    assert any(line.startswith("A  ") and "align" in line for line in lines)


def test_many_running_commands_are_summed_up():
    running = [{"sample": f"S{n}", "step": "align", "command": "x", "started_at": NOW_US} for n in range(30)]
    state = {"pipeline": "p", "counts": {"running": 30}, "running": running}
    text = drawn(picture(state, [], NOW_US, NOW_US, progress(0)))
    assert "and 18 more commands" in text
    assert "align 30 at work" in text


def test_the_live_view_prints_ends_above_the_picture_and_goes_away():
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None, markup=False, highlight=False)
    view = LiveView(console, lambda: NOW_US)
    try:
        view.planned(["1 new: A[/b]"])
        view.snapshot(SNAPSHOT)
        view.ended("sample", "A[/b]", "failed", "exit code 1")
        view.step("sample", "A", "align")
    finally:
        view.close()
    text = stream.getvalue()
    assert "1 new: A[/b]" in text
    assert "A[/b]: failed: exit code 1" in text
    assert "germline" in text
    assert "step align is saved" not in text  # counted in the picture, no line of its own


def summary(rows, tmp_path, **options):
    settings = {"exit_status": 1, "results": tmp_path / "results", "here": tmp_path, "interrupted": False} | options
    return "\n".join(summary_lines(rows, **settings))


def test_the_summary_names_every_state_and_what_to_type_next(tmp_path):
    rows = [
        {"kind": "once", "sample": "reference", "state": "done", "error": None},
        {"kind": "sample", "sample": "A", "state": "done", "error": None},
        {"kind": "sample", "sample": "B b", "state": "failed", "error": "exit code 1"},
        {"kind": "sample", "sample": "D", "state": "skipped", "error": None, "skipped_because": "12 reads"},
        {"kind": "cohort", "sample": "cohort", "state": "blocked", "error": None, "blocked_by": "B b"},
    ]
    text = summary(rows, tmp_path)
    assert text.splitlines() == [
        "3 samples: 1 failed, 1 skipped, 1 done",
        "  B b: failed: exit code 1",
        "  cohort: blocked: by B b",
        "  D: skipped: 12 reads",
        "results: results/",
        "exit status 1: not everything is done",
        "next: canard-pipe why 'B b'",
        "next: canard-pipe retry 'B b'    (after the cause is mended)",
    ]  # fmt: skip


def test_the_summary_of_an_interrupted_run_says_that_nothing_is_lost(tmp_path):
    rows = [{"kind": "sample", "sample": "A", "state": "waiting", "error": None}]
    text = summary(rows, tmp_path, exit_status=130, interrupted=True)
    assert "exit status 130: interrupted; nothing is lost, the same line goes on" in text
    assert "next: the same line again" in text


def test_a_thousand_failures_are_cut(tmp_path):
    rows = [{"kind": "sample", "sample": f"S{n}", "state": "failed", "error": "e"} for n in range(1000)]
    lines = summary(rows, tmp_path, state_option=" --state s").splitlines()
    assert len(lines) < 30
    assert "  and 980 more: canard-pipe status --state s --limit 0" in lines
    assert "next: canard-pipe retry --state s --failed    (after the cause is mended)" in lines
