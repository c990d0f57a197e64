"""The outcome of a command is its record on disk until the database has taken it into account."""

from __future__ import annotations

import json
import shutil

import pytest

from canard_pipe.errors import CommandFailed, OutputError, ReplayError
from canard_pipe.execution.resources import Escalate


def test_success_in_an_unfinished_step_is_returned_again(lab):
    context = lab.claim()
    first = context.process(lab.counting())
    for begin in (lab.again, lab.after_crash):  # with and without a row in jobs
        context = begin(context)
        assert context.process(lab.counting()) == first
    assert lab.executions == 1
    assert lab.jobs() == [(1, "done", None)]


def test_step_of_three_commands_goes_on_at_the_third(lab):
    def three(context, last):
        return [context.process(lab.counting(text)) for text in ("true", "true", last)]

    context = lab.claim()
    with pytest.raises(CommandFailed):
        context.step("three", three, context, "exit 1")
    context = lab.again(context)
    context.step("three", three, context, "exit 0")
    assert lab.executions == 4


def test_failure_that_no_transaction_recorded_is_replayed_once(lab):
    context = lab.claim()
    for begin in (lab.after_crash, lab.again):
        with pytest.raises(CommandFailed, match="exit code 1"):
            context.process(lab.counting("exit 1"))
        context = begin(context)
    assert lab.executions == 1
    assert lab.jobs() == [(1, "failed", "exit")]
    with pytest.raises(CommandFailed) as caught:
        context.process(lab.counting("exit 1"))
    assert caught.value.folder.name == "attempt-2"
    assert lab.executions == 2


def test_recorded_failure_is_followed_by_a_new_try_in_a_new_folder(lab):
    # BUGS 1, 43: the old folder stays as it is
    context = lab.claim()
    with pytest.raises(CommandFailed):
        context.process(lab.counting("echo one > out; exit 1"))
    context = lab.again(context)
    folder = context.process(lab.counting("test ! -e out"))
    assert folder.name == "attempt-2"
    assert (folder.parent / "attempt-1" / "out").read_text() == "one\n"


def test_other_command_in_the_place_of_a_success_is_a_replay_error_that_names_both(lab):
    context = lab.claim()
    context.step("align", lambda: None)
    context.process(["echo", "old"])
    context = lab.again(context)
    with pytest.raises(ReplayError, match=r"echo old.*echo new"):
        context.process(["echo", "new"])


def test_asking_for_more_is_the_same_command(lab):
    context = lab.claim()
    context.process(lab.counting(), cpus=1, memory="1G", time="1h")
    context = lab.again(context)
    context.process(lab.counting(), cpus=2, memory="2G", time="2h")
    assert lab.executions == 1


def test_failed_command_may_be_corrected(lab):
    context = lab.claim()
    for begin in (lab.again, lab.after_crash):
        with pytest.raises(CommandFailed):
            context.process(lab.counting(f"exit {2 + lab.executions}"))
        context = begin(context)
    context.process(lab.counting("exit 0"))
    assert lab.executions == 3


def test_commands_after_one_that_ran_anew_run_anew(lab):
    # they may have read what it made
    context = lab.claim()
    first = context.process(lab.counting("echo x > out"), outputs=["out"])
    context.process(lab.counting("cat " + str(first / "out")))
    (first / "out").unlink()
    context = lab.again(context)
    second = context.process(lab.counting("echo x > out"), outputs=["out"])
    assert context.process(lab.counting("cat " + str(second / "out"))).name == "attempt-2"
    assert lab.executions == 4


def test_success_whose_outputs_are_gone_or_changed_runs_again(lab):
    context = lab.claim()
    first = context.process(lab.counting("echo x > out"), outputs=["out"])
    (first / "out").write_text("cut off by a power failure")
    context = lab.after_crash(context)
    assert context.process(lab.counting("echo x > out"), outputs=["out"]).name == "attempt-2"


def test_unrecorded_bad_output_is_replayed_as_such(lab):
    context = lab.claim()
    for _ in range(2):
        with pytest.raises(OutputError):
            context.process(lab.counting(), outputs=["out"])
        context = lab.after_crash(context)
    assert lab.executions == 1


def test_after_a_reboot_a_success_without_declared_outputs_is_not_trusted(lab):
    context = lab.claim()
    folder = context.process(lab.counting())
    said = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(said | {"boot_id": "another"}))
    context = lab.after_crash(context)
    assert context.process(lab.counting()).name == "attempt-2"


def test_folder_without_a_record_is_left_alone(lab):
    # BUGS 43: what a killed run left blocks nothing and is not taken for a result
    for name, content in (("attempt-1", None), ("attempt-2", b"{"), ("attempt-3", b"")):
        folder = lab.root / "work" / "s1" / "+main" / name
        folder.mkdir(parents=True)
        if content is not None:
            (folder / "status.json").write_bytes(content)
    assert lab.claim().process(lab.counting()).name == "attempt-4"


def test_archived_commands_run_again(lab):
    # retry --from STEP archives the rows of the step's commands
    context = lab.claim()
    context.process(lab.counting())
    context.fail("failed")
    lab.database.write("archive_checkpoints", [{"task_seq": context.seq, "ordinal": 1, "step": ""}])
    assert lab.claim().process(lab.counting()).name == "attempt-2"


def test_work_folder_that_is_gone_is_no_obstacle(lab):
    context = lab.claim()
    context.process(lab.counting())
    shutil.rmtree(lab.root / "work")
    context = lab.again(context)
    assert context.process(lab.counting()).name == "attempt-1"
    assert lab.executions == 2


def test_time_grows_after_a_timeout_and_only_then(lab):
    # BUGS 39
    context = lab.claim()
    time = Escalate("0.2s", max="20s", factor=10)
    said = "echo memory $CANARD_MEMORY_BYTES >> asked; "
    with pytest.raises(Exception, match="longer than its time"):
        context.process(["bash", "-c", said + "sleep 0.7"], time=time, memory=Escalate("1G", max="4G"))
    context = lab.again(context)
    folder = context.process(["bash", "-c", said + "sleep 0.7"], time=time, memory=Escalate("1G", max="4G"))
    assert (folder / "asked").read_text() == f"memory {1024**3}\n"
    assert lab.jobs() == [(1, "failed", "timeout"), (2, "done", None)]
