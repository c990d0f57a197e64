"""Each way to fail has a word, facts and a decision: real commands, really failing (BUGS 7, 39, 40)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from canard_pipe.errors import BudgetError, CommandError, CommandFailed, CommandNotStarted, CommandTimeout, OutputError
from canard_pipe.execution import procfs
from canard_pipe.execution.resources import Escalate

HOG = "x = bytearray({mebibytes} << 20); import time; time.sleep(30)"
MIB = 1 << 20


def hog(mebibytes: int) -> list[str]:
    return [sys.executable, "-c", HOG.format(mebibytes=mebibytes)]


def failure(lab, context, *members, **options) -> CommandError:
    with pytest.raises(CommandError) as caught:
        context.pipe(*members, **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "word", "exit_code", "signal"),
    [("exit 7", "exit", 7, None), ("kill -SEGV $$", "signal", None, "SIGSEGV"),
     ("exec no-such-tool", "not_found", 127, None),
     ("exec /etc/passwd", "not_executable", 126, None)],
)  # fmt: skip
def test_a_failure_is_a_word_and_facts(lab, text, word, exit_code, signal):
    error = failure(lab, lab.claim(), ["sh", "-c", text])
    assert (error.cause, error.facts["exit_code"], error.facts["signal"]) == (word, exit_code, signal)
    assert error.again.final is (word in ("not_found", "not_executable"))


def test_the_member_of_a_pipe_that_failed_is_a_fact(lab):
    error = failure(lab, lab.claim(), ["sh", "-c", "exit 3"], ["cat"])
    assert error.facts["member"] == "sh -c 'exit 3'"


@pytest.mark.parametrize("enforced", [True, False])
def test_a_tree_that_uses_more_than_its_memory_is_ended_and_that_is_a_lack_of_memory(make_lab, enforced):
    # BUGS 40: by what it uses, children included, not by what it prints; and not by the 0 that the shell ends with
    lab = make_lab(enforce_memory=enforced)
    script = f"{sys.executable} -c '{HOG.format(mebibytes=150)}' & wait"
    error = failure(lab, lab.claim(), ["sh", "-c", script], memory="100M")
    assert (error.cause, error.facts["exit_code"], error.facts["signal"]) == ("oom", None, None)
    assert error.facts["peak_memory_bytes"] >= 100 * MIB, "a look in the middle of its growth"
    assert "had asked for 104857600" in str(error)
    assert error.again.final, "another try would get no more"
    assert "Escalate" in error.again.because
    lab.database.writer.flush()


def test_what_stays_below_its_memory_and_a_tenth_is_left_alone(lab):
    program = "x = bytearray(100 << 20); import time; time.sleep(0.8)"
    lab.claim().process([sys.executable, "-c", program], memory="110M")


def test_a_program_that_only_says_killed_is_a_plain_exit(lab):
    # BUGS 40
    error = failure(lab, lab.claim(), ["sh", "-c", "echo Killed >&2; exit 1"], memory=Escalate("1G", max="4G"))
    assert error.cause == "exit"
    assert not error.facts["oom"]


def test_memory_grows_after_a_lack_of_it_up_to_what_the_machine_has_and_costs_no_failure(lab):
    # BUGS 39: the request changes in the right dimension only
    asked = []
    context = lab.claim()
    memory = Escalate("30M", max="1T", factor=1024)
    error = failure(lab, context, hog(100), memory=memory, time="10m")
    assert (error.cause, error.again.final, error.again.counted) == ("oom", False, False)
    context = lab.again(context)
    folder = context.process(["sh", "-c", "echo $CANARD_MEMORY_BYTES"], memory=memory, time="10m")
    asked.append(int((folder / "stdout.log").read_text()))
    assert asked == [8 << 30], "the budget of this laboratory, not 30 GiB"


def test_a_start_beyond_the_machine_is_refused_rather_than_cut(lab):
    with pytest.raises(BudgetError):
        lab.claim().process(["true"], memory="9G")


@pytest.fixture
def small_memory(tmp_path):
    """A control group of 40 MiB: the file that takes a process into it."""
    for above, limit in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        group = Path("/sys/fs/cgroup") / above / f"canard-test-{tmp_path.name}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(40 * MIB))
            yield group / "cgroup.procs"
            group.rmdir()
            return
        group.rmdir()
    pytest.skip("no control group of memory can be made here")


def test_sigkill_by_the_kernel_for_lack_of_memory_is_known_by_the_kernels_own_count(lab, small_memory):
    # BUGS 40: signal 9, nothing in stderr
    script = f"echo $$ > {small_memory}; exec {sys.executable} -c '{HOG.format(mebibytes=400)}'"
    error = failure(lab, lab.claim(), ["sh", "-c", script], memory=Escalate("1G", max="2G"))
    assert (error.cause, error.facts["signal"]) == ("oom", "SIGKILL")
    assert error.facts["evidence"] == "the kernel has ended a process for lack of memory"
    assert not error.again.counted


def test_sigkill_from_somebody_else_is_a_plain_signal(lab):
    # BUGS 40
    if procfs.oom_kills() is None:
        pytest.skip("this kernel does not count")
    error = failure(lab, lab.claim(), ["sh", "-c", "kill -KILL $$"])
    assert (error.cause, error.facts["signal"], error.facts["evidence"]) == ("signal", "SIGKILL", None)


def test_a_timeout_that_can_grow_is_not_counted_and_one_that_cannot_is(lab):
    error = failure(lab, lab.claim("a"), ["sleep", "9"], time=Escalate("0.1s", max="1h"))
    assert isinstance(error, CommandTimeout)
    assert (error.cause, error.again.final, error.again.counted) == ("timeout", False, False)
    error = failure(lab, lab.claim("b"), ["sleep", "9"], time="0.1s")
    assert (error.again.final, error.again.counted) == (False, True)


@pytest.mark.parametrize("said", ["write failed: No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_known_by_last_words(lab, said):
    # BUGS 7
    error = failure(lab, lab.claim(), ["sh", "-c", f"echo '{said}' >&2; exit 1"])
    assert (error.cause, error.facts["exit_code"]) == ("disk_full", 1)
    assert "full" in str(error)


def test_words_of_a_full_disk_mean_nothing_after_success(lab):
    lab.claim().process(["sh", "-c", "echo 'No space left on device' >&2"])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False).returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_known_by_its_free_space_also_where_the_tool_says_nothing(make_lab, small_disk):
    # BUGS 7: exit code 0 and an empty output
    lab = make_lab(small_disk.parent / "lab")
    script = "cat /dev/zero > filling 2>/dev/null; : > out.txt"
    error = failure(lab, lab.claim(), ["sh", "-c", script], outputs=["out.txt"], directory=small_disk / "tries")
    assert isinstance(error, OutputError)
    assert error.cause == "disk_full"
    assert "bytes are free" in error.facts["evidence"]
    assert lab.jobs() == [(1, "failed", "disk_full")]


def test_a_disk_that_became_full_while_a_command_ended_well_is_no_success(make_lab, small_disk):
    # BUGS 7: exit code 0, and an output that has lost its end
    lab = make_lab(small_disk.parent / "lab")
    script = "cat /dev/zero > out.txt 2>/dev/null; exit 0"
    error = failure(lab, lab.claim(), ["sh", "-c", script], outputs=["out.txt"], directory=small_disk / "tries")
    assert error.cause == "disk_full"
    assert "may be cut off" in str(error)
    error = failure(lab, lab.claim("s2"), ["true"], directory=small_disk / "others")
    assert isinstance(error, CommandNotStarted | OutputError)
    assert error.cause == "disk_full"
    assert lab.jobs()[0] == (1, "failed", "disk_full")


def test_a_file_system_that_only_says_that_it_is_full_is_not_believed(lab, monkeypatch):
    real = os.statvfs

    def nothing_free(path):
        found = list(real(path))
        found[3] = found[4] = 0  # f_bfree, f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", nothing_free)
    folder = lab.claim().process(["sh", "-c", "echo made > out.txt"], outputs=["out.txt"])
    assert not list(folder.glob("*probe*"))


def test_a_check_of_ones_own_is_asked_after_the_outputs_are_there(lab):
    # PIPELINES: a count is the only sign of a cut that the tool has hidden
    def three_lines(folder):
        found = len((folder / "out.txt").read_text().splitlines())
        return None if found == 3 else f"{found} lines instead of 3"

    context = lab.claim()
    error = failure(lab, context, ["sh", "-c", "seq 2 > out.txt"], outputs=["out.txt"], check=three_lines)
    assert (error.cause, error.facts["problems"]) == ("output", ["2 lines instead of 3"])
    context = lab.again(context)
    context.process(["sh", "-c", "seq 3 > out.txt"], outputs=["out.txt"], check=three_lines)
    error = failure(lab, lab.claim("b"), ["true"], outputs=["out.txt"], check=three_lines)
    assert error.facts["problems"] == ["the output out.txt is missing"]


def test_declared_tries_are_counted_over_attempts_of_the_task(lab):
    context = lab.claim()
    for follows in (False, True):
        error = failure(lab, context, ["sh", "-c", "exit 75"], tries={75: 2})
        assert isinstance(error, CommandFailed)
        assert (error.again.final, error.again.counted) == (follows, False)
        if not follows:
            context = lab.again(context)
    assert "2 of 2 tries" in error.again.because


def test_the_pipelines_retry_holds_for_what_the_command_does_not_name(lab):
    context = lab.claim()
    context.tries = type(context.tries)({"exit": 1, 75: 2})
    assert failure(lab, context, ["sh", "-c", "exit 9"], tries={75: 3}).again.final
    assert not failure(lab, context, ["sh", "-c", "exit 75"], tries={75: 3}).again.final


def test_use_is_measured_and_kept(lab):
    program = "open('out', 'wb').write(bytes(5 << 20)); import os; os.fsync(os.open('out', 0)); sum(range(3_000_000))"
    lab.claim().process([sys.executable, "-c", program], outputs=["out"], memory="500M", time="1h")
    lab.database.writer.flush()
    _, rows = lab.database.store.sql(
        "SELECT memory_bytes, time_seconds, peak_memory_bytes > 5000000, cpu_seconds > 0.01, written_bytes >= 5 << 20,"
        " read_bytes >= 0 FROM canard_absurd.jobs"
    )
    assert rows == [(500 << 20, 3600.0, True, True, True, True)]
