"""Requests and the budget."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canard_pipe.errors import BudgetError, InputError
from canard_pipe.execution.resources import (
    Budget,
    Escalate,
    Request,
    Ticket,
    machine_cpus,
    machine_memory,
    parse_limits,
    parse_memory,
    parse_seconds,
)

GIB = 1024**3


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 * GIB), ("512 MB", 512 << 20), ("1.5GiB", 3 * GIB // 2), ("7", 7), (9, 9), ("2k", 2048), ("1t", 1 << 40)],
)
def test_memory_counts_by_1024(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "G", "4X", "-1G", "four", 0, -3, True, None, 1.5, "0G"])
def test_memory_that_is_no_size_is_refused(text):
    with pytest.raises(InputError):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1:02:03", 3723),
     ("1-00:00:00", 86400), (1.5, 1.5)],
)  # fmt: skip
def test_times_are_read(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2 weeks", "1:90:00", -1, 0, "0s", True, None, float("inf"), float("nan")]
)
def test_time_that_is_no_duration_is_refused(text):
    with pytest.raises(InputError):
        parse_seconds(text)


def test_escalate_grows_with_failures_for_that_reason_up_to_its_max():
    request = Escalate("4G", max="10G")
    assert [request.bytes(n) for n in range(4)] == [4 * GIB, 8 * GIB, 10 * GIB, 10 * GIB]
    assert Escalate("1h", max="8h", factor=3).seconds(1) == 3 * 3600


def test_escalate_beyond_its_own_max_is_refused():
    with pytest.raises(InputError):
        Escalate("4G", max="2G").bytes(0)
    with pytest.raises(InputError):
        Escalate("4G", max="8G", factor=0.5)


def test_limits_are_names_or_amounts():
    assert parse_limits(["a", "b"]) == {"a": 1, "b": 1}
    assert parse_limits({"a": 3}) == {"a": 3}
    for wrong in ("licence", {"a": 0}, {"a": True}):
        with pytest.raises(InputError):
            parse_limits(wrong)


def test_request_larger_than_the_budget_is_refused_at_once():
    # BUGS 58: refused, not stuck
    budget = Budget(8, 16 * GIB, {"licence": 2}, monotonic=Time())
    for request in (Request(9), Request(1, 17 * GIB), Request(1, 0, {"licence": 3})):
        with pytest.raises(BudgetError, match="asks for"):
            budget.ask(request)
    with pytest.raises(BudgetError, match="no limit named 'licenze'"):
        budget.ask(Request(1, 0, {"licenze": 1}))


def test_small_request_passes_a_large_one_that_does_not_fit():
    budget = Budget(4, GIB, monotonic=Time())
    first, large, small = budget.ask(Request(3)), budget.ask(Request(4)), budget.ask(Request(1))
    assert (first.granted, large.granted, small.granted) == (True, False, True)
    small.release()
    first.release()
    assert large.wait()


def test_nobody_passes_a_large_request_that_has_aged():
    time = Time()
    budget = Budget(4, GIB, monotonic=time, ageing_seconds=30)
    first, large = budget.ask(Request(3)), budget.ask(Request(4))
    time.now = 30
    small = budget.ask(Request(1))
    assert not small.granted
    first.release()
    assert large.granted
    assert not small.granted
    large.release()
    assert small.granted


def test_what_an_aged_request_does_not_need_stays_free():
    time = Time()
    budget = Budget(4, GIB, {"licence": 1}, monotonic=time, ageing_seconds=30)
    holder, waiting = budget.ask(Request(1, 0, {"licence": 1})), budget.ask(Request(1, 0, {"licence": 1}))
    time.now = 31
    assert budget.ask(Request(2)).granted
    assert not budget.ask(Request(1)).granted  # the last cpu is kept for the one who waits for a licence
    holder.release()
    assert waiting.granted


def test_withdrawn_ticket_tells_its_waiter_and_lets_others_in():
    time = Time()
    budget = Budget(2, GIB, monotonic=time, ageing_seconds=0)
    first, large, small = budget.ask(Request(1)), budget.ask(Request(2)), budget.ask(Request(1))
    assert not small.granted
    large.withdraw()
    assert large.wait() is False
    assert small.wait() is True
    for ticket in (first, large, small):
        ticket.release()
        ticket.release()
    assert budget.free() == {"cpus": 2, "memory": GIB}


requests = st.builds(
    Request,
    cpus=st.sampled_from([0.5, 1, 2, 3.3, 8]),
    memory_bytes=st.integers(0, 16) .map(lambda n: n * GIB),
    limits=st.dictionaries(st.just("licence"), st.integers(1, 2)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(requests, st.integers(0, 5), st.floats(0, 40)), max_size=40))
def test_budget_is_never_exceeded_and_everybody_gets_a_turn(steps: list[Any]):
    # L11, BUGS 58
    time = Time()
    budget = Budget(8, 16 * GIB, {"licence": 2}, monotonic=time)
    tickets: list[Ticket] = []

    def out(name):
        return sum(ticket.needs.get(name, 0) for ticket in tickets if ticket.granted)

    def within():
        return out("cpus") <= 8000 and out("memory") <= 16 * GIB and out("limit licence") <= 2

    for request, ending, passed in steps:
        tickets.append(budget.ask(request))
        assert within()
        time.now += passed
        for ticket in [ticket for ticket in tickets if ticket.granted][:ending]:
            ticket.release()
            tickets.remove(ticket)
            assert within()
    while tickets:
        running = [ticket for ticket in tickets if ticket.granted]
        assert running, "somebody waits though nothing is out"
        running[0].release()
        tickets.remove(running[0])
        assert within()
    assert budget.free() == {"cpus": 8, "memory": 16 * GIB, "limit licence": 2}


def test_threads_share_the_budget():
    budget = Budget(3, GIB, monotonic=Time())
    lock, out, most = threading.Lock(), [0], [0]

    def work(cpus):
        for _ in range(50):
            with budget.taken(Request(cpus)):
                with lock:
                    out[0] += cpus
                    most[0] = max(most[0], out[0])
                with lock:
                    out[0] -= cpus

    threads = [threading.Thread(target=work, args=(1 + n % 3,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most[0] <= 3
    assert budget.free()["cpus"] == 3


def test_the_machine_has_something():
    assert machine_cpus() >= 1
    assert machine_memory() > 1 << 20
