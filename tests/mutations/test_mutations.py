"""The suite notices when a rule of the package is broken: each mutation, in a copy, makes a named test fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import (
    FAILED,
    HANGS_SECONDS,
    PASSED,
    CannotApply,
    Edit,
    Mutation,
    copy_project,
    mutate,
    run_tests,
)

Verdict = tuple[int, str]


def judge(folder: Path, mutation: Mutation) -> Verdict:
    return run_tests(mutate(folder, mutation), mutation.tests, test_seconds=HANGS_SECONDS)


def judge_unchanged(folder: Path) -> Verdict:
    return run_tests(copy_project(folder), dict.fromkeys(test for mutation in MUTATIONS for test in mutation.tests))


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Mutation | None], Future[Verdict]]]:
    """All that is asked for in this run, begun at once: as many at a time as there are processors."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    begun: dict[str, Future[Verdict]] = {}

    def verdict(mutation: Mutation | None) -> Future[Verdict]:
        name = mutation.name if mutation else "unchanged"
        if name not in begun:
            folder = tmp_path_factory.mktemp("mutation")
            begun[name] = pool.submit(judge, folder, mutation) if mutation else pool.submit(judge_unchanged, folder)
        return begun[name]

    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function) and "verdicts" in item.fixturenames:
            mutation = item.callspec.params["mutation"] if hasattr(item, "callspec") else None
            assert mutation is None or isinstance(mutation, Mutation)
            verdict(mutation)
    yield verdict
    pool.shutdown(cancel_futures=True)


def test_without_a_mutation_the_tests_pass(verdicts):
    """In the same kind of copy: otherwise any failure would look like a mutation that was noticed."""
    code, output = verdicts(None).result()
    assert code == PASSED, output


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_noticed(verdicts, mutation):
    code, output = verdicts(mutation).result()
    assert code == FAILED, output


def test_a_mutation_whose_text_has_changed_is_an_error(tmp_path):
    (tmp_path / "a.sql").write_text("twice twice")
    for old in ("gone", "twice"):
        with pytest.raises(CannotApply, match="not once"):
            Edit("a.sql", old, "new").apply(tmp_path)
    assert (tmp_path / "a.sql").read_text() == "twice twice"
