"""How a failure is recorded: the back-off, and where an exception was raised."""

from __future__ import annotations

import pytest

from canard_pipe.pipeline.policy import LONGEST_DELAY_SECONDS, FailurePolicy, cause_of


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 1.0), (6, 32.0), (7, 60.0), (999_999, 60.0)])
def test_the_back_off_doubles_up_to_its_cap_however_often_a_task_has_failed(failures, seconds):
    assert FailurePolicy(lambda: 1.0).delay_seconds(failures) == seconds


def test_the_jitter_takes_up_to_half_of_the_back_off():
    assert FailurePolicy(lambda: 0.0).delay_seconds(100) == LONGEST_DELAY_SECONDS / 2


def test_an_exception_is_placed_in_the_users_file_also_below_a_folder_of_our_name(tmp_path):
    file = tmp_path / "canard_pipe" / "mine.py"
    names: dict[str, object] = {}
    exec(compile("def shape(text):\n    return parse_memory(text)\n", str(file), "exec"), names)
    from canard_pipe.execution.resources import parse_memory

    names["parse_memory"] = parse_memory
    shape = names["shape"]
    assert callable(shape)
    with pytest.raises(ValueError, match="memory") as caught:
        shape("much")
    assert cause_of(caught.value)["where"] == f"{file}:2 in shape"
