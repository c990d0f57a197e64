"""What becomes of a job, by its record and Slurm's words over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canard_pipe.execution.record import Identity, MemberEnd, Record
from canard_pipe.execution.slurm import Seen, states
from canard_pipe.execution.slurm.judging import SUBMITTED, Clocks, Ends, Goes, Patience, judge

PATIENCE = Patience()
DONE = Record(
    Identity("t", "s", 1, "o"), "token", "digest", "itself", 0, None, (MemberEnd(("true",), 0, None),), job_id="7"
)
FAILED = replace(DONE, exit_code=3)
KILLED = replace(DONE, exit_code=None, signal="SIGTERM")
TERMINATED = replace(KILLED, ended_by="terminated")


class Job:
    """One job and the answers about it, at times in seconds."""

    def __init__(self) -> None:
        self.state, self.clocks = SUBMITTED, Clocks()

    def at(self, now: float, word: str | None, record: Record | None = None, *, reason="", complete=True, outputs=True):
        seen = None if word is None else Seen("7", "cp-x", word, reason)
        verdict = judge(
            self.state, seen, record, self.clocks, PATIENCE, now, complete=complete, outputs_there=outputs
        )
        if isinstance(verdict, Goes):
            self.state = verdict.state
        return verdict


def test_one_job_that_is_preempted_and_put_back_is_the_same_job():
    """BUGS 10."""
    job = Job()
    for now, word in enumerate(["RUNNING", "PREEMPTED", "PENDING", "RUNNING"]):
        assert isinstance(job.at(now, word), Goes)
    assert job.at(9, "COMPLETED", DONE) == Ends()


@pytest.mark.parametrize(("word", "cause"), [("NODE_FAIL", "node_failure"), ("PREEMPTED", "preempted")])
def test_a_failed_node_is_believed_when_slurm_does_not_put_the_job_back(word, cause):
    """BUGS 10, second variant."""
    job = Job()
    assert isinstance(job.at(0, word), Goes)
    assert isinstance(job.at(PATIENCE.requeue - 1, word), Goes)
    assert job.at(PATIENCE.requeue, word) == Ends(cause)


def test_an_empty_answer_is_not_known_yet():
    """BUGS 14."""
    job = Job()
    for now in range(4):
        assert isinstance(job.at(now, None), Goes)
    assert job.at(5, "RUNNING").state == "running"
    assert job.at(6, "COMPLETED", DONE) == Ends()


def test_a_job_that_nobody_knows_is_lost_after_a_while_and_not_left_running_for_ever():
    """BUGS 29."""
    job = Job()
    job.at(0, "RUNNING")
    assert isinstance(job.at(1, None), Goes)
    assert job.at(1 + PATIENCE.silence, None) == Ends("lost", give_up=True)


def test_an_outage_of_hours_costs_patience_and_not_the_job():
    """BUGS 13."""
    job = Job()
    job.at(0, "RUNNING")
    for hour in range(1, 12):
        assert isinstance(job.at(hour * 3600.0, None, complete=False), Goes)
    assert isinstance(job.at(12 * 3600.0, None), Goes)
    assert job.at(12 * 3600.0 + 5, None, DONE, complete=False) == Ends()


@pytest.mark.parametrize("word", ["RUNNING", "COMPLETED", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", None])
def test_a_record_of_success_decides_whatever_slurm_says(word):
    """BUGS 31 (b): a job that Slurm calls OUT_OF_MEMORY but whose command has ended with 0 is done."""
    assert Job().at(0, word, DONE) == Ends()


def test_a_suspended_job_goes_on_for_as_long_as_slurm_likes():
    job = Job()
    assert isinstance(job.at(0, "RUNNING"), Goes)
    assert isinstance(job.at(1, "SUSPENDED"), Goes)
    assert isinstance(job.at(PATIENCE.hopeless + PATIENCE.silence, "SUSPENDED"), Goes)
    assert isinstance(job.at(PATIENCE.hopeless + PATIENCE.silence + 1, "RUNNING"), Goes)


@pytest.mark.parametrize("word", ["RUNNING", "COMPLETED", "FAILED", "TIMEOUT"])
def test_an_exit_code_in_the_record_is_the_outcome(word):
    """BUGS 30: what sacct makes of it (72 for 200) does not count."""
    assert Job().at(0, word, FAILED) == Ends()


@pytest.mark.parametrize(
    ("word", "cause"),
    [("TIMEOUT", "timeout"), ("CANCELLED", "cancelled"), ("OUT_OF_MEMORY", "oom"), ("PREEMPTED", "preempted")],
)
@pytest.mark.parametrize("record", [KILLED, TERMINATED])
def test_slurm_knows_why_a_command_was_ended_by_a_signal(word, cause, record):
    """BUGS 64."""
    job = Job()
    assert isinstance(job.at(0, "RUNNING", record), Goes)
    assert job.at(1, word, record) == Ends(cause)


def test_a_signal_that_slurm_knows_nothing_of_is_the_commands_own():
    job = Job()
    assert isinstance(job.at(0, "RUNNING", KILLED), Goes)
    assert job.at(1, "FAILED", KILLED) == Ends()
    assert Job().at(0, "COMPLETED", TERMINATED) == Ends("cancelled")


@pytest.mark.parametrize(
    ("word", "cause"), [("COMPLETED", "no_record"), ("FAILED", "no_record"), ("TIMEOUT", "timeout")]
)
def test_without_a_record_slurms_end_is_believed_when_a_shared_folder_had_time_to_show_it(word, cause):
    job = Job()
    assert isinstance(job.at(0, word), Goes)
    assert isinstance(job.at(PATIENCE.record - 1, word), Goes)
    assert job.at(PATIENCE.record, word) == Ends(cause)


def test_outputs_that_are_not_visible_yet_are_waited_for():
    job = Job()
    assert isinstance(job.at(0, "COMPLETED", DONE, outputs=False), Goes)
    assert job.at(1, "COMPLETED", DONE) == Ends()
    late = Job()
    late.at(0, "COMPLETED", DONE, outputs=False)
    assert late.at(PATIENCE.record, "COMPLETED", DONE, outputs=False) == Ends()


def test_a_hopeless_reason_is_told_and_ends_in_a_failure():
    job = Job()
    assert job.at(0, "PENDING", reason="PartitionTimeLimit") == Goes(SUBMITTED, "PartitionTimeLimit")
    told = job.at(PATIENCE.told, "PENDING", reason="PartitionTimeLimit")
    assert isinstance(told, Goes)
    assert "PartitionTimeLimit" in (told.warning or "")
    assert job.at(PATIENCE.hopeless, "PENDING", reason="PartitionTimeLimit") == Ends("never_starts", give_up=True)


def test_a_held_job_has_the_time_of_a_person():
    job = Job()
    job.at(0, "PENDING", reason="JobHeldUser")
    assert isinstance(job.at(PATIENCE.hopeless * 2, "PENDING", reason="JobHeldUser"), Goes)
    assert isinstance(job.at(PATIENCE.hopeless * 2 + 1, "PENDING", reason="Priority"), Goes)
    assert isinstance(job.at(PATIENCE.held + 1, "PENDING", reason="JobHeldUser"), Goes)  # the clock began anew


def test_a_word_that_is_not_known_is_told_and_never_an_end():
    job = Job()
    for now in (0.0, PATIENCE.told, 1e6):
        verdict = job.at(now, "TRANSCENDED")
        assert isinstance(verdict, Goes)
    assert "TRANSCENDED" in (verdict.warning or "")


def test_words_with_what_slurm_adds_to_them_are_known():
    """BUGS 31 (c)."""
    assert states.meaning("CANCELLED by 0").cause == "cancelled"
    assert states.meaning("OUT_OF_ME+").cause == "oom"
    assert not states.meaning("").known
