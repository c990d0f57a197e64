"""How a failure is recorded: as data, final or not, and where an exception was raised."""

from __future__ import annotations

import pytest

from canard_pipe.pipeline.policy import cause_of


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
