"""A database that is served while it is written."""

from __future__ import annotations

import threading

from canard_pipe.engine.database import Database


def test_serving_begins_beside_a_busy_writer_without_taking_its_results(tmp_path):
    """A DuckDB connection holds one result: what another thread executes on the writer's own would take its rows."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as database:
        ids = database.spawn_many("job", list(range(120)))
        begun = threading.Event()
        problems: list[BaseException] = []

        def write() -> None:
            try:
                for claim in database.claim_many(120, lease_seconds=60):
                    claim.step("a", lambda: 1)
                    begun.set()
                    claim.complete(2)
            except BaseException as error:
                problems.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(20)
        for _ in range(5):
            database.serve()
            database.stop_serving()
        writer.join(60)
        assert problems == []
        assert {database.result(id) for id in ids} == {2}
