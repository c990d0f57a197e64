"""Commands that run: what they get, how they end, what is kept. Real processes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from canard_pipe.errors import (
    BudgetError,
    CommandFailed,
    CommandNotStarted,
    CommandTimeout,
    InputError,
    LeaseLost,
    OutputError,
)
from canard_pipe.execution import folders
from tests.execution.conftest import GIB, alive_with


def test_process_returns_the_folder_of_the_try(lab):
    # F19
    context = lab.claim("s1")
    folder = context.step("align", lambda: context.process(["sh", "-c", "pwd; echo aligned > sample.bam"]))
    assert folder == lab.root / "work" / "s1" / "align" / "attempt-1"
    assert (folder / "sample.bam").read_text() == "aligned\n"
    assert (folder / "stdout.log").read_text() == f"{folder}\n"
    assert sorted(path.name for path in folder.iterdir()) == [
        "command.sh", "sample.bam", "status.json", "stderr.log", "stdout.log", "tmp",
    ]  # fmt: skip
    assert lab.jobs() == [(1, "done", None)]


def test_commands_of_a_step_have_folders_by_their_order(lab):
    context = lab.claim()
    made = context.step("two", lambda: [context.process(["true"]), context.process(["true"])])
    outside = context.process(["true"])
    assert [folder.relative_to(lab.root / "work" / "s1").as_posix() for folder in [*made, outside]] == [
        "two/attempt-1", "two.2/attempt-1", "+main/attempt-1",
    ]  # fmt: skip


def test_record_says_how_it_ended_and_what_it_used(lab):
    code = "x = bytearray(60_000_000)\nfor i in range(2_000_000): pass"
    folder = lab.claim().process([sys.executable, "-c", code])
    said = json.loads((folder / "status.json").read_text())
    assert (said["version"], said["exit_code"], said["signal"], said["ended_by"]) == (1, 0, None, "itself")
    assert said["members"] == [{"argv": [sys.executable, "-c", code], "exit_code": 0, "signal": None}]
    assert said["peak_memory_bytes"] > 60_000_000
    assert said["cpu_seconds"] > 0
    assert said["host"] == os.uname().nodename
    assert said["started_at"] <= said["ended_at"]
    assert said["started_at"].endswith("Z")


@pytest.mark.parametrize(
    ("members", "code", "culprit"),
    [
        ([["false"], ["cat"]], 1, "member 1 of 2 of the pipe, false,"),
        ([["echo", "x"], ["sh", "-c", "cat; exit 3"]], 3, "member 2 of 2"),
        ([["yes"], ["sh", "-c", "exit 4"]], 4, "member 2 of 2"),  # not yes, whose SIGPIPE is the consequence
    ],
)
def test_every_member_of_a_pipe_counts(lab, members, code, culprit):
    # BUGS 17 a
    with pytest.raises(CommandFailed) as caught:
        lab.claim().pipe(*members)
    assert caught.value.exit_code == code
    assert culprit in str(caught.value)


def test_sigpipe_is_a_failure_that_names_the_way_out(lab):
    # BUGS 17 b
    context = lab.claim()
    with pytest.raises(CommandFailed, match=r"SIGPIPE.*sigpipe_ok=True") as caught:
        context.pipe(["yes"], ["head", "-1"])
    assert (caught.value.signal, caught.value.cause) == ("SIGPIPE", "broken_pipe")
    folder = context.pipe(["yes"], ["head", "-1"], sigpipe_ok=True, stdout="out.txt")
    assert (folder / "out.txt").read_text() == "y\n"
    with pytest.raises(CommandFailed, match=r"141.*SIGPIPE"):
        context.shell("yes | head -1")


def test_missing_member_of_a_pipe_is_not_found_and_nothing_runs(lab):
    # BUGS 17 c
    with pytest.raises(CommandNotStarted, match="cmd_not_there was not found in PATH") as caught:
        lab.claim().pipe(lab.counting(), ["cmd_not_there"])
    assert caught.value.cause == "not_found"
    assert lab.executions == 0
    assert lab.jobs() == [(1, "failed", "not_found")]


def test_programs_that_cannot_be_started_say_why(lab):
    context = lab.claim()
    plain, bad, lost = lab.root / "plain", lab.root / "bad", lab.root / "lost"
    plain.write_text("#!/bin/sh\n")
    bad.write_text("neither\n")
    lost.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    lost.chmod(0o755)
    for args, cause, says in [
        ([plain], "not_executable", "is not executable"),
        ([bad], "not_executable", "neither a program nor begins with #!"),
        ([lost], "not_found", "interpreter"),
        (["./here.sh"], "not_found", "relative paths are relative to the folder of the try"),
        (["true", "x" * 200_000], "not_executable", "too long"),
    ]:
        with pytest.raises(CommandNotStarted, match=says) as caught:
            context.process(args)
        assert caught.value.cause == cause
    with pytest.raises(CommandNotStarted, match=r"absent\.fq"):
        context.process(["cat"], stdin=lab.root / "absent.fq")


def test_program_is_looked_up_in_the_path_of_the_command(lab):
    tool = lab.root / "bin" / "my tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    folder = lab.claim().process(["my tool"], env={"PATH": f"{tool.parent}:/usr/bin:/bin"})
    assert (folder / "stdout.log").read_text() == "mine\n"


def test_failure_tells_exit_code_last_words_and_folder(lab):
    with pytest.raises(CommandFailed) as caught:
        lab.claim().process(["sh", "-c", "echo first; echo 'no such chromosome' >&2; exit 7"])
    folder = lab.root / "work" / "s1" / "+main" / "attempt-1"
    assert (caught.value.exit_code, caught.value.signal, caught.value.folder) == (7, None, folder)
    assert "exit code 7" in str(caught.value)
    assert "no such chromosome" in str(caught.value)
    assert str(folder) in str(caught.value)
    assert lab.jobs() == [(1, "failed", "exit")]


def test_signal_is_told_by_name(lab):
    context = lab.claim()
    with pytest.raises(CommandFailed, match="SIGSEGV") as caught:
        context.process(["sh", "-c", "kill -SEGV $$"])
    assert (caught.value.exit_code, caught.value.signal) == (None, "SIGSEGV")
    with pytest.raises(CommandFailed, match=r"139.*SIGSEGV"):
        context.process(["sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"])


def test_signals_are_at_their_defaults_in_commands(lab):
    folder = lab.claim().process(["grep", "^Sig[IB]", "/proc/self/status"])
    for line in (folder / "stdout.log").read_text().splitlines():
        internal = 0b11 << 31  # glibc's posix_spawn leaves its own two real-time signals ignored
        assert int(line.split()[1], 16) & ~internal == 0, line


def test_commands_inherit_no_descriptor(lab):
    folder = lab.claim().process([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"])
    assert (folder / "stdout.log").read_text() in ("['0', '1', '2', '3']\n",)


def test_standard_input_and_output_can_be_files(lab):
    (lab.root / "in.txt").write_text("b\na\n")
    context = lab.claim()
    folder = context.pipe(["cat"], ["sort"], stdin=lab.root / "in.txt", stdout="sorted.txt", outputs=["sorted.txt"])
    assert (folder / "sorted.txt").read_text() == "a\nb\n"
    assert not (folder / "stdout.log").exists()
    assert (context.process(["cat"]) / "stdout.log").read_text() == "", "no input: at its end at once"


def test_missing_and_empty_outputs_fail_though_the_exit_code_is_0(lab):
    # BUGS 20
    with pytest.raises(OutputError) as caught:
        lab.claim().process(
            ["sh", "-c", "echo x > good.txt; : > empty.txt"], outputs=["good.txt", "empty.txt", "a.bam.bai"]
        )
    assert caught.value.problems == ("the output empty.txt is empty", "the output a.bam.bai is missing")
    assert lab.jobs() == [(1, "failed", "output")]


def test_environment_is_clean(make_lab, monkeypatch):
    # BUGS 41, 59
    leaks = {
        "PYTHONPATH": "/x", "PYTHONHOME": "/x", "R_LIBS_USER": "/x", "LD_LIBRARY_PATH": "/x", "CONDA_PREFIX": "/x",
        "VIRTUAL_ENV": "/x", "SLURM_JOB_ID": "1", "SBATCH_MEM": "1", "CANARD_ATTEMPT": "outer", "MY_TOOL": "asked",
    }  # fmt: skip
    passed = {"LC_TIME": "C", "https_proxy": "http://p", "TZ": "UTC", "HOME": "/home/me"}
    for name, value in (leaks | passed).items():
        monkeypatch.setenv(name, value)
    lab = make_lab()
    folder = lab.claim().process(
        ["env", "-0"], cpus=2, memory="1G", env={"EXTRA": "a b\nc", "MY_TOOL": None, "ABSENT": None}
    )
    seen = dict(entry.split("=", 1) for entry in (folder / "stdout.log").read_text().split("\0") if entry)
    assert not (set(leaks) - {"CANARD_ATTEMPT", "MY_TOOL"}) & set(seen)
    assert {name: seen[name] for name in passed} == passed
    assert (seen["EXTRA"], seen["MY_TOOL"], seen["PATH"]) == ("a b\nc", "asked", os.environ["PATH"])
    assert (seen["OMP_NUM_THREADS"], seen["CANARD_CPUS"], seen["CANARD_MEMORY_BYTES"]) == ("2", "2", str(GIB))
    assert seen["TMPDIR"] == str(folder / "tmp")
    assert seen["CANARD_ATTEMPT"] != "outer"
    assert "ABSENT" not in seen


def test_temporary_files_go_with_the_command(lab):
    folder = lab.claim().process(["sh", "-c", "cd $TMPDIR && touch a && mkdir b && pwd"])
    assert (folder / "stdout.log").read_text() == f"{folder}/tmp\n"
    assert not (folder / "tmp").exists()


@pytest.mark.parametrize(
    ("place", "id", "step"),
    [("My Lab's data (2024) ü", "Sample 1/é'\"$x", "align: it's \"1\""), ("deep", "s" * 256, "t" * 200)],
)
def test_odd_and_long_names_work(make_lab, tmp_path, place, id, step):
    # BUGS 67, 68
    lab = make_lab(tmp_path / place)
    context = lab.claim(id)
    folder = context.step(step, lambda: context.shell("echo {x} > {out}", x=id, out="o ü.txt", outputs=["o ü.txt"]))
    assert (folder / "o ü.txt").read_text() == f"{id}\n"
    assert len(str(folder)) <= len(str(lab.root)) + 150


def test_output_of_any_bytes_and_any_amount_is_kept_as_it_is(lab):
    # BUGS 55, 56: nobody reads the output while the command runs, so nothing can block or break
    code = (
        "import os\nbad = b'\\x90\\xff\\x1b[31m\\r\\0'\n"
        "for n in (1, 2): os.write(n, bad)\n"
        "for _ in range(160):\n for n in (1, 2): os.write(n, b'x' * 65536)\n"
    )
    folder = lab.claim().process([sys.executable, "-c", code])
    for name in ("stdout.log", "stderr.log"):
        content = (folder / name).read_bytes()
        assert content.startswith(b"\x90\xff\x1b[31m\r\0")
        assert len(content) == 9 + 160 * 65536


def test_failure_with_bad_bytes_is_told_as_text(lab):
    with pytest.raises(CommandFailed, match="exit code 1") as caught:
        lab.claim().process(["sh", "-c", r"printf '\220\377 \033[31mred\033[0m\n' >&2; exit 1"])
    assert "\ufffd\ufffd red" in str(caught.value)
    str(caught.value).encode()


def test_shell_runs_strict_bash_with_values_quoted(lab):
    context = lab.claim()
    folder = context.shell("cat {files} | tr a-z A-Z > {out}; echo {cpus}", files=["/dev/null"], out="it's", cpus=2)
    assert (folder / "it's").exists()
    assert (folder / "stdout.log").read_text() == "2\n"
    with pytest.raises(CommandFailed, match=r"exit codes of the failed line: 1 0"):
        context.shell("false | cat > out")
    with pytest.raises(InputError, match="no place"):
        context.shell("true", treads=4)


def test_directory_moves_the_folders_of_tries(lab):
    context = lab.claim()
    assert context.process(["true"], directory="here") == lab.root / "here" / "attempt-1"
    with pytest.raises(InputError, match="same directory"):  # S38
        context.process(["true"], directory=lab.root / "here")
    again = lab.again(context)
    assert again.process(["true"], directory="here") == lab.root / "here" / "attempt-1", "its success is replayed"
    assert again.process(["true"], directory="there") == lab.root / "there" / "attempt-1"


def test_same_directory_of_two_tasks_never_mixes_their_outcomes(lab):
    first = lab.claim("s1").process(["true"], directory="here")
    second = lab.claim("s2").process(["true"], directory="here")
    assert (first.name, second.name) == ("attempt-1", "attempt-2")


def test_timeout_ends_the_tree_and_has_no_exit_code(lab):
    # S38, E18, BUGS 50 d
    context = lab.claim()
    started = time.monotonic()
    with pytest.raises(CommandTimeout, match="longer than its time") as error:
        context.process(
            ["bash", "-c", "sleep 7100.1 & (setsid sleep 7100.2 &) ; echo partial; sleep 7100.3"], timeout=0.5
        )
    assert time.monotonic() - started < 5
    assert (error.value.task_id, error.value.folder.name, error.value.facts["exit_code"]) == ("s1", "attempt-1", None)
    assert alive_with("sleep 7100.") == []
    said = json.loads((lab.root / "work/s1/+main/attempt-1/status.json").read_text())
    assert (said["exit_code"], said["signal"], said["ended_by"]) == (None, None, "timeout")
    assert lab.jobs() == [(1, "failed", "timeout")]


def ended_when_ready(lab, background, wait_until, script: str) -> float:
    """Run a script until it has touched ``ready``, then take its lease away; return how long its end took."""
    context = lab.claim()
    call = background(lambda: context.process(["bash", "-c", script]))
    wait_until((lab.root / "work/s1/+main/attempt-1/ready").exists, 30)
    began = time.monotonic()
    lab.database.cancel("s1")
    assert isinstance(call.join(40).error, LeaseLost)
    return time.monotonic() - began


def test_command_that_ignores_term_is_killed_after_the_grace(lab, background, wait_until):
    # L20
    script = "trap '' TERM; touch ready; while :; do sleep 7101; done"
    assert ended_when_ready(lab, background, wait_until, script) >= lab.executor.grace_seconds
    assert alive_with("sleep 7101") == []


def test_command_may_clean_up_on_term(make_lab, background, wait_until):
    lab = make_lab(grace_seconds=30.0)
    script = "trap 'echo tidy > tidied; exit 0' TERM; touch ready; sleep 7102 & wait"
    ended_when_ready(lab, background, wait_until, script)
    assert (lab.root / "work/s1/+main/attempt-1/tidied").exists()


def test_request_larger_than_the_budget_is_refused_and_makes_no_folder(lab):
    context = lab.claim()
    with pytest.raises(BudgetError):
        context.process(["true"], cpus=3)
    with pytest.raises(BudgetError):
        context.process(["true"], memory="9G")
    assert not (lab.root / "work").exists()


def test_only_as_much_runs_as_the_budget_allows(lab, background, wait_until):
    ids = ["s1", "s2", "s3"]
    contexts = [lab.claim(id) for id in ids]
    gate = lab.root / "go"
    waiting = ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done"]
    calls = [background(lambda c=c: c.process(waiting, limits=["licence"])) for c in contexts]
    wait_until(lambda: len(lab.executor.running()) == 3 and any(one.pids for one in lab.executor.running()))
    states = sorted(one.state for one in lab.executor.running())
    assert states == ["running", "waiting", "waiting"]
    one = next(one for one in lab.executor.running() if one.state == "running")
    assert one.folder == lab.root / "work" / one.task_id / "+main" / "attempt-1"
    assert one.command.startswith("sh -c")
    wait_until(lambda: any(one.memory_bytes for one in lab.executor.running()))
    gate.touch()
    assert [call.join().error for call in calls] == [None, None, None]
    assert lab.executor.running() == []


def test_scratch_lives_until_its_step_is_saved(lab):
    context = lab.claim()

    def interrupted():
        (context.scratch() / "half").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        context.step("sort", interrupted)
    context = lab.again(context)
    seen = []

    def whole():
        first, second = context.scratch(), context.scratch()
        context.step("inner", lambda: None)
        seen.extend([first, second, (first / "half").exists(), second.is_dir()])
        return 1

    context.step("sort", whole)
    first, second, *held = seen
    assert held == [True, True]
    assert first != second
    assert not first.exists()
    assert not second.exists()
    with pytest.raises(InputError, match="inside a step"):
        context.scratch()


def test_unknown_options_are_refused(lab):
    with pytest.raises(InputError, match="unknown option 'treads'"):
        lab.claim().process(["true"], treads=4)


def test_process_substitution_may_finish_after_its_shell(lab):
    # bash does not wait for >(...): what it writes must not be cut
    folder = lab.claim().shell("echo x > >(sleep 0.1; cat > late.txt)", outputs=[])
    assert (folder / "late.txt").read_text() == "x\n"


def test_work_folder_of_another_database_is_not_taken_over(make_lab, tmp_path):
    lab = make_lab()
    lab.claim().process(lab.counting())
    lab.executor.close()
    lab.database.close()
    for file in tmp_path.glob("state*"):
        file.unlink()
    fresh = make_lab()
    assert fresh.claim().process(fresh.counting()).name == "attempt-2"
    assert fresh.executions == 2


def test_log_of_a_try_is_found_by_its_folder(lab):
    folder = lab.claim().process(["sh", "-c", "seq 100"])
    assert folders.last_lines(Path(folder) / "stdout.log", 2) == ["99", "100"]
