"""Runs on a real Slurm, with real faults: each sample comes to its right end by exactly one accepted execution."""

from __future__ import annotations

import signal

import pytest

from tests.conftest import wait_until

ONE = """
@pipeline.sample
def one(sample, ctx):
    out = ctx.step("work", lambda: ctx.process(
        counting(sample, f"while [ -e {HERE}/hold ]; do sleep 0.1; done; echo done > out"), outputs=["out"]))
    ctx.publish({"out": out / "out"})
"""


def test_a_run_brings_its_results_and_one_job_for_each_command(site):
    site.write(ONE, "A", "B", "C")
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(site.executions) == ["A", "B", "C"]
    assert site.jobs() == [("done", "")] * 3
    assert (site.folder / "results" / "B" / "out").read_text() == "done\n"


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_running_job_outlives_its_run_and_is_adopted_by_the_next(site, signal_number):
    (site.folder / "hold").touch()
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    run.send_signal(signal_number)
    assert run.wait(60) == (130 if signal_number == signal.SIGTERM else -signal.SIGKILL)
    (site.folder / "hold").unlink()
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.executions == ["A"]
    assert site.jobs() == [("done", "")]


def test_a_job_that_ends_while_no_run_is_alive_counts(site):
    (site.folder / "hold").touch()
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    site.kill(run)
    (site.folder / "hold").unlink()
    wait_until(lambda: list(site.folder.glob("work/**/status.json")), 30)
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.executions == ["A"]


def test_cancel_takes_the_job_from_slurm(site):
    (site.folder / "hold").touch()
    site.write(ONE, "A", "B")
    run = site.start()
    wait_until(lambda: sorted(site.executions) == ["A", "B"], 60)
    from tests.cli.pipelines import canard

    assert canard(site.folder, "cancel", "A").returncode == 0
    wait_until(lambda: ("cancelled", "") in site.jobs(), 60, every_seconds=0.3)
    (site.folder / "hold").unlink()
    assert run.wait(60) == 1
    assert sorted(site.sql("select sample, state from canard_absurd.samples")) == [("A", "cancelled"), ("B", "done")]
    assert site.cluster.call(["squeue", "-h"]).stdout.strip() == ""


def test_a_job_cancelled_by_hand_is_told_and_made_again(site):
    (site.folder / "hold").touch()
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    site.cluster.call(["scancel", "--user=root"])
    wait_until(lambda: ("failed", "cancelled") in site.jobs(), 60, every_seconds=0.3)
    (site.folder / "hold").unlink()
    assert run.wait(90) == 0
    assert site.executions == ["A", "A"]
    assert site.jobs() == [("failed", "cancelled"), ("done", "")]


def test_a_job_past_its_time_gets_more(site):
    site.write("""
    @pipeline.sample
    def one(sample, ctx):
        ctx.step("work", lambda: ctx.process(
            counting(sample, f"[ $(wc -l < {HERE}/executions) -gt 1 ] || sleep 600"), time=Escalate("5s", max="1m")))
    """)
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.jobs() == [("failed", "timeout"), ("done", "")]
    assert site.sql("select time_seconds from canard_absurd.jobs order by attempt") == [("5.0",), ("10.0",)]


def test_a_lost_node_costs_the_sample_nothing(site):
    (site.folder / "hold").touch()
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    (node,) = site.cluster.call(["squeue", "-h", "-o", "%N"]).stdout.split()
    site.cluster.lose(int(node.removeprefix("n")))
    (site.folder / "hold").unlink()
    assert run.wait(110) == 0, site.log
    assert site.jobs() == [("failed", "node_failure"), ("done", "")]
    assert site.sql("select failures from canard_absurd.tasks") == [("0",)]


def test_the_controller_may_die_and_come_back(site):
    (site.folder / "hold").touch()
    site.write(ONE, "A", "B")
    run = site.start()
    wait_until(lambda: sorted(site.executions) == ["A", "B"], 60)
    site.cluster.kill("slurmctld")
    (site.folder / "hold").unlink()
    wait_until(lambda: len(list(site.folder.glob("work/**/status.json"))) == 2, 30)
    site.cluster.run("slurmctld")
    assert run.wait(110) == 0, site.log
    assert sorted(site.executions) == ["A", "B"]


def test_accounting_may_be_away_for_the_whole_run(site):
    site.cluster.kill("slurmdbd")
    site.write(ONE, "A", "B", "C")
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(site.executions) == ["A", "B", "C"]


def test_a_wrong_partition_fails_at_once_in_slurms_words(site):
    site.settings(partition='"nosuch"')
    site.write(ONE)
    ended = site.run()
    assert ended.returncode == 1
    assert "Invalid partition name specified" in ended.stdout
    assert site.jobs() == [("failed", "not_submitted")]
    assert site.executions == []
