"""Submitting, watching and cancelling in rounds, with a Slurm that does what a real one will not do on demand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from canard_pipe.execution.slurm import Doubt, JobId, Refused
from tests.execution.slurm.fakes import FakeSlurm


def one(_given: Any, ctx: Any) -> str:
    return ctx.step("work", lambda: str(ctx.process(["true"]).name))


def test_a_command_is_recorded_before_anything_is_submitted(make_bench):
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(one)
    assert bench.states() == [("waiting", True, False, None)]
    assert bench.slurm.calls == {}
    bench.round()
    assert bench.slurm.calls["submit"] == 1
    bench.slurm.ends("1")
    bench.round()
    bench.work(one)
    assert bench.database.result("A") == "attempt-1"
    assert bench.slurm.calls["submit"] == 1


def test_a_thousand_jobs_are_one_question_in_each_round(make_bench):
    bench = make_bench()
    ids = [f"s{number}" for number in range(1000)]
    bench.database.spawn_many("sample", [None] * 1000, ids=ids)
    bench.work(one)
    bench.round()
    assert bench.slurm.calls == {"submit": 1000, "states": 1}
    bench.round(seconds=100)
    assert bench.slurm.calls["states"] == 2
    for number in bench.slurm.jobs:
        bench.slurm.ends(number)
    bench.round(seconds=100)
    assert bench.slurm.calls["states"] == 3
    bench.work(one)
    assert bench.database.queues()["default"]["completed"] == 1000
    assert bench.slurm.calls["submit"] == 1000


def test_no_more_jobs_than_allowed_are_in_slurm_and_submitted_in_a_minute(make_bench):
    bench = make_bench(max_jobs=30, per_minute=25)
    bench.database.spawn_many("sample", [None] * 50, ids=[f"s{number}" for number in range(50)])
    bench.work(one)
    bench.round()
    assert len(bench.slurm.jobs) == 25
    bench.round(seconds=61)
    assert len(bench.slurm.jobs) == 30
    for number in list(bench.slurm.jobs)[:10]:
        bench.slurm.ends(number)
    bench.round(seconds=61)
    bench.round(seconds=61)
    assert len(bench.slurm.jobs) == 40


def test_slurm_is_asked_less_often_while_nothing_changes(make_bench):
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(one)
    for _ in range(600):
        bench.round(seconds=1)
    assert bench.slurm.calls["states"] <= 20
    bench.slurm.ends("1")  # its record is seen without asking
    bench.round(seconds=1)
    assert bench.states() == [("ended", False, False, None)]


def test_a_lost_answer_of_sbatch_is_found_by_name_and_never_submitted_twice(make_bench):
    """L12, BUGS 12."""
    bench = make_bench(FakeSlurm(lost_answers=1))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    assert [row[0] for row in bench.states()] == ["submitted"]
    assert bench.slurm.calls["submit"] == 1


def test_a_submission_that_never_came_to_be_is_made_anew_under_another_name(make_bench):
    bench = make_bench(FakeSlurm(submissions=[Doubt("Socket timed out")]))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    assert [row[0] for row in bench.states()] == ["submitting"]
    bench.round(seconds=30)
    assert bench.states()[0][:3] == ("ended", False, True)
    (folder,) = (bench.database.root / "work").rglob("attempt-1")
    assert (folder / "revoked").exists()
    bench.clock.sleep(1)
    bench.work(one)
    bench.clock.sleep(60)
    bench.work(one)
    bench.round(seconds=30)
    assert [row[0] for row in bench.states()][-1] == "submitted"
    names = [row[0] for row in bench.database.store.sql("SELECT job_name FROM canard_absurd.jobs")[1]]
    assert len(set(names)) == 2
    assert bench.database.tasks(id="A")[0].failures == 0


def test_while_slurm_does_not_answer_a_submission_stays_in_doubt(make_bench):
    bench = make_bench(FakeSlurm(lost_answers=1, answers=False))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    for _ in range(20):
        bench.round(seconds=600)
    assert [row[0] for row in bench.states()] == ["submitting"]
    bench.slurm.answers = True
    bench.round(seconds=600)
    assert [row[0] for row in bench.states()] == ["submitted"]
    assert bench.slurm.calls["submit"] == 1


def test_the_next_head_looks_up_what_the_dead_one_left_in_doubt(make_bench):
    bench = make_bench(FakeSlurm(lost_answers=1, answers=False))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    bench.dies()
    bench.slurm.answers = True
    bench.round()
    assert [row[0] for row in bench.states()] == ["submitted"]
    assert bench.slurm.calls["submit"] == 1


def test_a_number_that_slurm_uses_again_is_not_the_job(make_bench):
    """BUGS 11, and a controller that has lost its state: another job has the number, ours is forgotten."""
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    seen, folder = bench.slurm.jobs["1"]
    bench.slurm.jobs["1"] = (replace(seen, name="somebody-elses", state="COMPLETED"), folder)
    bench.round(seconds=100)
    assert [row[0] for row in bench.states()] == ["submitted"]
    bench.round(seconds=400)
    assert bench.states() == [("ended", False, True, "lost")]
    assert (folder / "revoked").exists()  # so the forgotten job, if it still runs, writes no record


def test_a_full_queue_is_patience_and_a_wrong_account_is_final(make_bench):
    """BUGS 36."""
    refusals = [Refused("MaxSubmitJobs", final=False), Refused("Invalid account", final=True)]
    bench = make_bench(FakeSlurm(submissions=[*refusals]))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    assert bench.states() == [("waiting", True, False, None)]
    bench.round(seconds=1)
    assert bench.slurm.calls["submit"] == 1  # it rests meanwhile
    bench.round(seconds=60)
    bench.work(one)
    task = bench.database.tasks(id="A")[0]
    assert "Invalid account" in (task.error or "")


def test_a_cancelled_task_has_its_job_revoked_and_then_cancelled_until_it_is_gone(make_bench):
    """BUGS 37."""
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    bench.database.cancel("A")
    bench.round()
    assert bench.slurm.cancelled == ["1"]
    assert (bench.slurm.jobs["1"][1] / "revoked").exists()
    bench.round(seconds=100)
    assert bench.states() == [("cancelled", False, False, None)]


def test_a_command_that_was_edited_while_its_job_waits_replaces_the_job(make_bench):
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    bench.dies()
    bench.database.store.sql(
        "UPDATE canard_absurd.tasks SET state = 'ready', available_at = created_at, version = version + 1"
    )
    bench.work(lambda _given, ctx: ctx.step("work", lambda: str(ctx.process(["false"]).name)))
    bench.round()
    assert [row[0] for row in bench.states()][-1] == "submitted"
    assert bench.slurm.cancelled == ["1"]


def test_commands_that_ask_for_the_same_are_one_array_and_each_element_has_its_own_end(make_bench):
    """BUGS 61."""
    bench = make_bench(array=True, array_window_seconds=5)
    bench.database.spawn_many("sample", [None] * 4, ids=list("ABCD"))
    bench.work(one)
    bench.round(seconds=1)
    assert bench.slurm.calls == {}  # others may come
    bench.round(seconds=10)
    assert bench.slurm.calls["submit"] == 1
    _, rows = bench.database.store.sql("SELECT job_id, job_name FROM canard_absurd.jobs ORDER BY job_id")
    assert [row[0] for row in rows] == ["1_0", "1_1", "1_2", "1_3"]
    assert len({row[1] for row in rows}) == 1
    for number in ("1_0", "1_1", "1_3"):
        bench.slurm.ends(number)
    bench.slurm.ends("1_2", exit_code=2)
    bench.round(seconds=20)
    bench.work(one)
    states = {task.id: task.state for task in bench.database.tasks()}
    assert sorted(states.values()) == ["completed", "completed", "completed", "ready"]


def test_an_array_in_doubt_is_found_element_by_element(make_bench):
    bench = make_bench(FakeSlurm(lost_answers=1), array=True, array_window_seconds=5)
    bench.database.spawn_many("sample", [None] * 3, ids=list("ABC"))
    bench.work(one)
    bench.round(seconds=10)
    assert [row[0] for row in bench.states()] == ["submitted"] * 3
    _, rows = bench.database.store.sql("SELECT job_id FROM canard_absurd.jobs ORDER BY job_id")
    assert [row[0] for row in rows] == ["1_0", "1_1", "1_2"]
    assert bench.slurm.calls["submit"] == 1


def test_an_array_that_slurm_does_not_take_now_may_become_others_with_names_of_their_own(make_bench):
    bench = make_bench(
        FakeSlurm(submissions=[Refused("MaxSubmitJobs", final=False)]), array=True, array_window_seconds=5, max_jobs=2
    )
    bench.database.spawn_many("sample", [None] * 3, ids=list("ABC"))
    bench.work(one)
    bench.round(seconds=10)
    assert [row[0] for row in bench.states()] == ["waiting"] * 3
    bench.round(seconds=60)
    for number in list(bench.slurm.jobs):
        bench.slurm.ends(number)
    bench.round(seconds=60)
    bench.round(seconds=60)
    _, rows = bench.database.store.sql("SELECT job_id, job_name, array_index FROM canard_absurd.jobs")
    assert sorted(row[2] is None for row in rows) == [False, False, True]
    assert len({row[1] for row in rows}) == 2


def test_the_options_of_sbatch_say_what_the_command_asked_for(make_bench):
    bench = make_bench()
    bench.database.spawn("sample", id="A")
    bench.work(lambda _given, ctx: ctx.step(
        "work", lambda: str(ctx.process(["true"], cpus=2.5, memory="1500M", time="90s").name)
    ))
    bench.round()
    options = bench.slurm.options[0]
    for wanted in ("--cpus-per-task=3", "--mem=1500M", "--time=2", "--export=NONE", "--no-requeue", "--nodes=1"):
        assert wanted in options
    assert any(option.startswith("--job-name=cp-") and len(option) < 80 for option in options)


def test_job_ids_are_kept_with_their_cluster(make_bench):
    """BUGS 34, 35."""
    bench = make_bench(FakeSlurm(submissions=[JobId("5", "naut")]))
    bench.database.spawn("sample", id="A")
    bench.work(one)
    bench.round()
    _, rows = bench.database.store.sql("SELECT job_id, cluster FROM canard_absurd.jobs")
    assert rows == [("5", "naut")]
