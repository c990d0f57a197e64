"""What may run now, and whether anything still can: decided from what is committed, each time anew."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.tasks import Tasks
from canard_pipe.pipeline import cohorts, items
from canard_pipe.pipeline.definition import Pipeline


class OnceFirst:
    """Lets once functions go before the others of a pipeline."""

    def __init__(self, tasks: Tasks, pipeline: Pipeline) -> None:
        self._tasks, self._pipeline = tasks, pipeline
        self._once = with_items(function.name for function in pipeline.of_kind("once"))
        self._all = with_items(pipeline.functions)
        self._done = not self._once

    def names(self) -> frozenset[str]:
        """Return the names of the tasks that may be claimed: of functions, and of their items."""
        if not self._done:
            ((left,),) = self._tasks.query("once_open", pipeline=self._pipeline.name)
            self._done = left == 0
        return self._all if self._done else self._once


class Gate:
    """Opens the functions of a pipeline in their order: once, then samples, then cohorts as they are settled.

    ``only``: the task ids that this run is about, None for all; cohort tasks made meanwhile join them. May be called
    from several threads.
    """

    def __init__(
        self, database: Database, pipeline: Pipeline, params_value: Any, run_id: str, only: set[str] | None = None
    ) -> None:
        self._database, self._pipeline = database, pipeline
        self._params_value, self._run_id = params_value, run_id
        self._only = only
        self._lock = threading.Lock()
        self._settled = False
        self.names = OnceFirst(database, pipeline).names

    def ids(self) -> list[str] | None:
        """Return the ids of the tasks that may be claimed; None for all."""
        with self._lock:
            only = None if self._only is None else sorted(self._only)
        if not only:
            return only
        return only + [row[0] for row in self._database.query("items_of_tasks", ids=json.dumps(only))]

    def join(self, ids: Collection[str]) -> None:
        """Let these tasks run too, as another terminal asks."""
        self.look_again()
        with self._lock:
            if self._only is not None:
                self._only |= set(ids)

    def look_again(self) -> None:
        """Say that a task has come to another state: cohorts may be settled now."""
        self._settled = False

    def finished(self) -> bool:
        """Make the cohort tasks that are settled; tell whether no task can move any more."""
        if not self._settled:
            self._settled = True  # before looking: who changes something meanwhile takes it back
            made = cohorts.refresh(self._database, self._pipeline, self._params_value, self._run_id, spawn=True)
            if made:
                rows = cohorts.sample_states(self._database, self._pipeline.name)
                self.join([row.task_id for row in rows if row.kind == "cohort" and row.key in made and row.task_id])
                return False
        ids = self.ids()
        ((left,),) = self._database.query(
            "unfinished_tasks",
            queue=self._pipeline.name,
            names=json.dumps(sorted(self.names())),
            ids=None if ids is None else json.dumps(ids),
        )
        return int(left) == 0


def with_items(functions: Iterable[str]) -> frozenset[str]:
    names = list(functions)
    return frozenset([*names, *map(items.task_name, names)])
