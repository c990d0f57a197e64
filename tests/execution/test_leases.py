"""The lease of a claim while its command waits and runs, and what ends with it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from canard_pipe.engine.worker import work
from canard_pipe.errors import InputError, LeaseLost, StorageError, TaskReleased
from canard_pipe.execution import local
from canard_pipe.execution.heartbeats import Heartbeats
from canard_pipe.execution.resources import Request
from tests.execution.conftest import alive_with


def test_command_three_times_longer_than_the_lease_is_not_reclaimed(lab):
    # L10: the seed's example
    def align(_, ctx):
        command = ["sh", "-c", "sleep 1.5; echo aligned > sample.bam"]
        return ctx.step("align", lambda: ctx.process(command) / "sample.bam")

    id = lab.database.spawn("align", {"depth": 30}, id="sample-101")
    work(lab.database, {"align": align}, idle_timeout=0, lease_seconds=0.5)
    task = lab.database.inspect(id)
    assert (task.summary.state, task.summary.attempt) == ("completed", 1)
    assert lab.database.result(id).parent.name == "attempt-1"


def test_waiting_for_the_budget_keeps_the_lease_too(lab, background, wait_until):
    first, second = lab.claim("s1"), lab.claim("s2", lease_seconds=0.4)
    gate = lab.root / "go"
    running = background(lambda: first.process(["sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done"], cpus=2))
    wait_until(lambda: any(one.pids for one in lab.executor.running()))
    waiting = background(lambda: second.process(["true"], cpus=2))
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 1.2)
    gate.touch()
    assert running.join().error is None
    assert waiting.join().error is None
    second.complete()


def test_lost_lease_ends_the_tree_and_the_handler(lab, background, wait_until):
    # G29
    context = lab.claim()
    call = background(lambda: context.process(["bash", "-c", "sleep 7200.1 & (setsid sleep 7200.2 &); sleep 7200.3"]))
    wait_until(lambda: len(alive_with("sleep 7200.")) >= 3)
    lab.database.cancel("s1")
    assert isinstance(call.join().error, LeaseLost)
    assert alive_with("sleep 7200.") == []


def test_lost_lease_ends_the_waiting_for_the_budget(lab, background, wait_until):
    first, second = lab.claim("s1"), lab.claim("s2")
    running = background(lambda: first.process(["sleep", "7201"], cpus=2))
    wait_until(lambda: any(one.pids for one in lab.executor.running()))
    waiting = background(lambda: second.process(lab.counting(), cpus=2))
    wait_until(lambda: len(lab.executor.running()) == 2)
    lab.database.cancel("s2")
    assert isinstance(waiting.join().error, LeaseLost)
    assert lab.executions == 0
    lab.database.cancel("s1")
    assert isinstance(running.join().error, LeaseLost)


def test_nothing_starts_under_a_lost_lease(lab):
    # G30
    context = lab.claim()
    lab.database.cancel("s1")
    with pytest.raises(LeaseLost):
        context.process(lab.counting())
    assert lab.executions == 0
    assert not (lab.root / "work").exists()


def test_lease_is_looked_at_once_more_when_the_wait_for_the_budget_is_over(lab, background, wait_until, monkeypatch):
    # G30: lost in the moment before the start, before the supervisor has noticed
    monkeypatch.setattr(local, "TICK_SECONDS", 60)
    context = lab.claim()
    with lab.executor.budget.taken(Request(2)):
        call = background(lambda: context.process(lab.counting()))
        wait_until(lambda: lab.executor.running())
        context.lost.set()
    assert isinstance(call.join().error, LeaseLost)
    assert lab.executions == 0


def test_stop_releases_running_and_waiting_handlers_and_counts_nothing(lab, background, wait_until):
    first, second = lab.claim("s1"), lab.claim("s2")
    running = background(lambda: first.process(["bash", "-c", "sleep 7202.1 & sleep 7202.2"], cpus=2))
    wait_until(lambda: len(alive_with("sleep 7202.")) >= 2)
    waiting = background(lambda: second.process(["true"], cpus=2))
    wait_until(lambda: len(lab.executor.running()) == 2)
    lab.executor.stop_all()
    assert isinstance(running.join().error, TaskReleased)
    assert isinstance(waiting.join().error, TaskReleased)
    assert alive_with("sleep 7202.") == []
    with pytest.raises(TaskReleased):
        second.process(["true"])
    first.release()
    assert lab.jobs() == [(1, "interrupted", "stop")]


def test_second_stop_is_at_once(make_lab, background, wait_until):
    lab = make_lab(grace_seconds=600.0)
    context = lab.claim()
    call = background(lambda: context.process(["bash", "-c", "trap '' TERM; echo > up; while :; do sleep 0.1; done"]))
    wait_until(lambda: (lab.root / "work/s1/+main/attempt-1/up").exists())
    lab.executor.stop_all()
    lab.executor.stop_all(grace_seconds=0)
    assert isinstance(call.join().error, TaskReleased)


def test_stopped_command_runs_again_in_a_new_folder(make_lab, tmp_path, background, wait_until):
    lab = make_lab()
    context = lab.claim()
    call = background(lambda: context.process(lab.counting("sleep 7203")))
    wait_until(lambda: lab.executions == 1)
    lab.executor.close()
    assert isinstance(call.join().error, TaskReleased)
    context.release()
    lab.database.close()
    again = make_lab(tmp_path)
    assert again.claim().process(again.counting()).name == "attempt-2"


def test_interrupt_in_the_handlers_thread_ends_the_command(lab, background, monkeypatch, wait_until):
    # G23: Ctrl-C in a worker with one slot
    context = lab.claim()
    original = threading.Event.wait
    interrupted: list[int] = []

    def wait(event, timeout=None):
        admitted = next(iter(lab.executor._admitted), None)
        if not interrupted and admitted is not None and event is admitted.ended:
            wait_until(lambda: alive_with("sleep 7204"))
            interrupted.append(1)
            raise KeyboardInterrupt
        return original(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", wait)
    call = background(lambda: context.process(["sleep", "7204"]))
    assert isinstance(call.join().error, KeyboardInterrupt)
    assert alive_with("sleep 7204") == []


def test_heartbeat_must_be_shorter_than_the_lease(lab):
    for seconds in (0, 30, -1):
        with pytest.raises(InputError, match="heartbeat_seconds"):
            lab.claim(f"s{seconds}").process(["true"], heartbeat_seconds=seconds)


class FakeClaim(SimpleNamespace):
    def __init__(self, lease_seconds):
        super().__init__(lease_seconds=lease_seconds, lost=threading.Event())


def test_many_claims_are_renewed_with_one_call(wait_until):
    calls = []
    beats = Heartbeats(lambda claims: calls.append(len(claims)), time.monotonic)
    beats.start()
    with beats.keeping(FakeClaim(0.3), None), beats.keeping(FakeClaim(60), None), beats.keeping(FakeClaim(60), None):
        wait_until(lambda: len(calls) >= 2)
    beats.close()
    assert calls[0] == 3


def test_claim_that_cannot_be_renewed_counts_as_lost_when_its_lease_must_be_over(wait_until):
    calls = []

    def renew(claims):
        calls.append(claims)
        raise StorageError("away", operation="heartbeat")

    beats = Heartbeats(renew, time.monotonic)
    beats.start()
    claim = FakeClaim(0.3)
    with beats.keeping(claim, None):
        wait_until(lambda: beats.overdue() == [claim])
    beats.close()
    assert calls


def test_time_in_which_the_process_stood_still_does_not_count(monkeypatch):
    now = [0.0]
    beats = Heartbeats(lambda _: None, lambda: now[0])
    with beats.keeping(FakeClaim(30), None):
        for seconds in (0.5, 600.0, 600.5):
            now[0] = seconds
            assert beats.overdue() == []
        for _ in range(60):
            now[0] += 0.5
            found = beats.overdue()
        assert found
