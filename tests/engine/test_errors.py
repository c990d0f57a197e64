"""The tree of errors: what each is caught by, and the facts that it carries (E1 to E18, N4)."""

from __future__ import annotations

import duckdb
import pytest

import canard_pipe
from canard_pipe import errors
from canard_pipe.errors import CanardError, StorageError
from tests.engine.conftest import claimed, start

PARENTS = {
    "E1": ("CanardError", Exception),
    "E2": ("InputError", ValueError),
    "E3": ("ValueEncodeError", errors.InputError),
    "E4": ("StorageError", CanardError),
    "E5": ("ConflictError", StorageError),
    "E6": ("LeaseLost", StorageError),
    "E7": ("ProtocolError", StorageError),
    "E8": ("RestoreError", StorageError),
    "E9": ("FailureRecordingError", StorageError),
    "E10": ("SpawnConflict", CanardError),
    "E11": ("ResultUnavailable", CanardError),
    "E12": ("ReplayError", CanardError),
    "E13": ("SchemaError", CanardError),
    "E14": ("ExtensionError", CanardError),
    "E15": ("ConnectionClosed", CanardError),
    "E16": ("MaintenanceError", CanardError),
    "E17": ("CloseError", ExceptionGroup),
    "E18": ("CommandError", CanardError),
    "N4": ("TaskSuspended", BaseException),
}


@pytest.mark.parametrize("id", list(PARENTS))
def test_each_class_has_its_place_and_is_public(id):
    name, parent = PARENTS[id]
    kind = getattr(errors, name)
    assert issubclass(kind, parent)
    assert issubclass(kind, CanardError) == (id != "N4")
    assert issubclass(kind, Exception) == (id != "N4")  # G24
    assert getattr(canard_pipe, name) is kind
    assert name in canard_pipe.__all__


def test_every_error_of_the_package_has_the_root():
    """E1: one class catches all of them."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(found) > 25
    assert [kind for kind in found if not issubclass(kind, CanardError) and kind is not errors.SampleSkipped] == []


def test_an_error_of_the_database_says_what_was_tried_how_often_and_what_it_follows_from(db, faults):
    """E4: the operation, the number and time of the tries, DuckDB's own error and its type."""
    claim = start(db)
    faults.planned["save_checkpoints"] = "before"
    with pytest.raises(StorageError) as error:
        claim.step("a", lambda: 1)
    assert error.value.operation in ("save_checkpoints", "saving step 'a'")
    assert error.value.attempts == 1
    assert error.value.elapsed_seconds >= 0


@pytest.mark.embedded("over a connection the type of DuckDB's error is lost, as E5 says")
def test_the_type_of_the_first_error_is_known(db, faults):
    """E4."""
    claim = start(db)
    faults.planned["commit"] = "after"
    with pytest.raises(StorageError) as error:
        claim.complete()
    assert error.value.error_type == "IOException"
    assert isinstance(error.value.__cause__, StorageError)
    assert isinstance(error.value.__cause__.__cause__, duckdb.IOException)


def test_a_lost_lease_names_task_attempt_and_operation(db):
    """E6."""
    claim = start(db)
    db.cancel("t")
    claim.lost.clear()
    with pytest.raises(canard_pipe.LeaseLost) as error:
        claim.complete()
    assert (error.value.task_id, error.value.attempt, error.value.operation) == ("t", 1, "complete")


def test_a_suspension_names_task_and_attempt(db):
    """N4."""
    claim = start(db)
    with pytest.raises(canard_pipe.TaskSuspended) as suspended:
        claim.sleep("z", 0)
    assert (suspended.value.task_id, suspended.value.attempt) == ("t", 1)
    assert claimed(db).attempt == 2


def test_the_tree_in_the_docstring_names_every_class():
    tree = errors.__doc__ or ""
    names = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert [name for name in names if name not in tree and not name.startswith("_")] == []
