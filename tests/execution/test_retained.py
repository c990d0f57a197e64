"""An ID that was removed by retention and spawned again is another task: it takes over no command from old folders."""

from __future__ import annotations

import canard_pipe


def test_a_command_of_a_removed_task_is_not_replayed_for_a_new_one_of_that_id(tmp_path):
    """L5, G25: the folders of the old task stay; their records name another origin."""
    ran = tmp_path / "ran.txt"

    def job(_given, ctx):
        return ctx.step("a", lambda: ctx.shell("echo x >> {ran}", ran=ran).name)

    with canard_pipe.open(tmp_path / "state.duckdb") as db:
        for _ in range(2):
            db.spawn("job", id="t")
            canard_pipe.work(db, {"job": job}, idle_timeout=0)
            assert db.result("t")
            assert db.retain(older_than_seconds=0) == 1
    assert ran.read_text() == "x\nx\n"
