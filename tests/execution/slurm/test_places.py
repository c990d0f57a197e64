"""Where things are done: on the head or in a job, and files that one machine writes and another reads."""

from __future__ import annotations

import itertools
import os
from typing import Any


def test_an_output_that_a_network_file_system_shows_late_is_waited_for(make_bench, monkeypatch):
    """BUGS 54: a name is not there for 20 s; what has not come at the limit, or only in part, fails its sample."""
    bench = make_bench()
    bench.database.spawn_many("sample", [None] * 3, ids=["late", "never", "part"], max_failures=1)

    def handler(_given: Any, ctx: Any) -> int:
        return ctx.step("work", lambda: (ctx.process(["true"], outputs=["out.txt"]) / "out.txt").stat().st_size)

    bench.work(handler)
    bench.round()
    folders = {number: folder for number, (_, folder) in bench.slurm.jobs.items()}
    late, part = (next(n for n, folder in folders.items() if name in str(folder)) for name in ("late", "part"))
    (folders[part] / "out.txt").write_text("wh")
    listed: list[str] = []
    listdir = os.listdir

    def listing(path: Any) -> list[str]:
        listed.append(str(path))
        if bench.clock.seconds >= shown_at and str(path) == str(folders[late]):
            (folders[late] / "out.txt").write_text("whole")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", listing)
    shown_at = bench.clock.seconds + 30  # 20 s after the job has ended
    bench.clock.sleep(10)
    for number in folders:
        bench.slurm.ends(number, outputs={"out.txt": 5})
    bench.round(seconds=1)
    bench.round(seconds=18)
    assert [row[0] for row in bench.states()] == ["submitted"] * 3
    bench.round(seconds=2)
    bench.work(handler)
    assert bench.database.result("late") == 5
    bench.round(seconds=38)
    assert bench.database.inspect("never").state == "suspended"
    bench.round(seconds=3)
    bench.work(handler)
    assert "the output out.txt is missing" in str(bench.database.inspect("never").error)
    assert "has 2 bytes here, and had 5 on n1" in str(bench.database.inspect("part").error)
    assert str(folders[late]) in listed
    assert bench.slurm.calls["submit"] == 3


def test_limits_of_the_head_are_not_those_of_jobs(make_bench):
    """BUGS 69: one command at a time on a head of one cpu, and jobs that get the 48 cpus that they ask for."""
    bench = make_bench()
    log = bench.database.root / "log"
    text = f"echo 1 >> {log}; sleep 0.02; echo -1 >> {log}"

    def handler(_given: Any, ctx: Any) -> None:
        ctx.step("near", lambda: ctx.process(["sh", "-c", text], executor="local") and None)
        ctx.step("far", lambda: ctx.process(["true"], cpus=48) and None)

    bench.database.spawn_many("sample", [None] * 8, ids=[f"s{number}" for number in range(8)])
    with bench.local:
        bench.work(handler)
    at_once = list(itertools.accumulate(int(line) for line in log.read_text().split()))
    assert (len(at_once), max(at_once)) == (16, 1)
    bench.round()
    assert len(bench.slurm.options) == 8
    assert all("--cpus-per-task=48" in options for options in bench.slurm.options)
