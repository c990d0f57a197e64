"""Which rules are broken on purpose, and where the suite has to notice it."""

from __future__ import annotations

from tests.mutations.mutation import Edit, Mutation

FENCE = "tests/engine/test_fence.py::test_of_two_transitions_that_overlap_exactly_one_wins"
LEASES = "tests/engine/test_leases.py"
STALE = f"{LEASES}::test_a_stale_claim_writes_nothing"
LOST = "tests/engine/test_lost_acknowledgements.py"
PUBLISHING = "tests/pipeline/test_publishing_troubles.py"
CLOCKS = "tests/engine/test_clocks.py"
TOKEN, DEADLINE = " AND t.token = b.token", " AND t.deadline > make_timestamp($now_us)"
VERSION = "version = t.version + 1, "


def sql(name: str, old: str, new: str = "") -> tuple[Edit, ...]:
    return (Edit(f"engine/sql/{name}.sql", old, new),)


MUTATIONS = (
    Mutation("a step is saved without a test of the token (G4)", sql("save_checkpoints", TOKEN),
             (f"{STALE}[embedded-taken over-step]",)),
    Mutation("a task is completed without a test of the token (G4)", sql("complete_tasks", TOKEN),
             (f"{STALE}[embedded-taken over-complete]",)),
    Mutation("a lease that is over is renewed (G4, S11)", sql("renew_leases", DEADLINE),
             (f"{STALE}[embedded-expired-heartbeat]",)),
    Mutation("a failure is recorded after the deadline (G4)", sql("fail_tasks", DEADLINE),
             (f"{STALE}[embedded-expired-fail]",)),
    Mutation("a lease is owned at the exact instant of its end (S9)",
             sql("complete_tasks", "t.deadline > make", "t.deadline >= make"),
             (f"{STALE}[embedded-expired-complete]",)),
    Mutation("saving a step does not change the version (G3)", sql("save_checkpoints", VERSION),
             (f"{FENCE}[running-checkpoint-cancel-commit]",)),
    Mutation("a cancel does not change the version (G3)", sql("cancel_tasks", VERSION),
             (f"{FENCE}[running-cancel-renew-commit]",)),
    Mutation("a clock that is set moves the deadlines and not the version (G3)",
             sql("move_deadlines", f"{VERSION}deadline", "deadline"),
             (f"{CLOCKS}::test_the_version_moves_with_the_deadline",)),
    Mutation("nobody looks for suspended tasks: a wake-up would have to be pushed (L1, L9)",
             (Edit("engine/database.py", "        self.wake()\n        self.reap(queue", "        self.reap(queue"),),
             ("tests/engine/test_waiting.py::test_a_worker_carries_a_wait_to_its_end",)),
    Mutation("only an event that comes after the suspension wakes (L1)",
             sql("wakeable_tasks", "e.name = w.key)", "e.name = w.key AND e.emitted_at > t.updated_at)"),
             ("tests/engine/test_waiting.py::test_an_event_between_the_look_and_the_suspension_is_not_missed",)),
    Mutation("a file is renamed into the results before it is recorded as accepted (L13)",
             (Edit("pipeline/publishing.py", "            staged = self._accept(claim, staged, keep_alive)\n",
                   "            self._place(claim, staged, keep_alive)\n"
                   "            staged = self._accept(claim, staged, keep_alive)\n"),),
             (f"{PUBLISHING}::test_a_cancelled_task_never_puts_a_byte_into_the_results",
              f"{PUBLISHING}::test_an_acceptance_that_was_not_written_leaves_no_result")),
    Mutation("a task is claimed once more than its budget allows (S4)",
             sql("claim_candidates", "failures + 1 < max_failures", "failures < max_failures"),
             (f"{LEASES}::test_every_expired_task_is_either_reclaimed_or_swept_and_never_both",)),
    Mutation("an expired lease counts no failure (S5)", sql("claim_tasks", "t.failures + b.expired", "t.failures"),
             (f"{LEASES}::test_an_expired_lease_with_budget_left_is_reclaimed_in_one_step",)),
    Mutation("what a dead owner held counts a failure (S2)",
             sql("interrupt_tasks", "SET version", "SET failures = t.failures + 1, version"),
             ("tests/engine/test_recovery.py::test_after_a_kill_the_tasks_are_ready_at_once_and_nothing_is_counted",)),
    Mutation("a commit that nobody answered for is repeated (G8, S25)",
             (Edit("engine/writer.py", "return self._committing and not isinstance(error, ConflictError)",
                   "return False"),),
             ("tests/engine/test_writer.py::test_a_commit_in_doubt_is_told_to_each_and_repeated_for_none",)),
    Mutation("a step whose acknowledgement was lost is not looked up (S26)",
             (Edit("engine/claim.py", "            self._look_up(name)\n", "            pass\n"),),
             (f"{LOST}::test_a_repeated_step_after_a_lost_acknowledgement_returns_the_stored_value",)),
    Mutation("deadlines whose move was not acknowledged are moved once more (S25)",
             (Edit("engine/writer.py", "if not any(after.get(seq)", "if True or not any(after.get(seq)"),),
             (f"{CLOCKS}::test_deadlines_move_once_although_the_acknowledgement_was_lost",)),
    Mutation("a storage error uses the failure budget (G10)",
             (Edit("engine/attempt.py", "    except StorageError:\n        raise\n    except Exception as error:",
                   "    except Exception as error:"),),
             ("tests/engine/test_worker.py::test_a_storage_error_passes_and_uses_no_failure",)),
    Mutation("a worker takes tasks that it has no handler for (S8)",
             (Edit("engine/worker.py", "names=frozenset(self._names()), ids", "names=None, ids"),),
             ("tests/engine/test_worker.py::test_tasks_of_unknown_names_are_left_alone",)),
    Mutation("a worker claims although its renewals fail",
             (Edit("engine/worker.py", "            return []\n        self._sweep()\n",
                   "            pass\n        self._sweep()\n"),),
             ("tests/engine/test_worker.py::test_a_worker_claims_nothing_while_its_renewals_fail",)),
    Mutation("None is not told from a step that is not saved (G12)",
             (Edit("engine/claim.py",
                   "        if saved is not None:\n            value = self._replayed(saved, \"step\")\n",
                   "        if saved is not None and saved.text != \"null\":\n"
                   "            value = self._replayed(saved, \"step\")\n"),),
             ("tests/engine/test_steps.py::test_a_saved_none_is_not_a_missing_checkpoint",)),
    Mutation("steps may be asked for in another order than they were saved",
             (Edit("engine/step_order.py", "if place < self._next:", "if False:"),),
             ("tests/engine/test_step_order.py::test_swapped_steps_are_an_error_that_names_the_two_ways_out",)),
    Mutation("a full disk at the commit counts as a conflict and is repeated (S34)",
             (Edit("engine/conflicts.py", "Failed\\ to\\ commit:\\ (?!PRIMARY", "Failed\\ to\\ commit:\\ (?=PRIMARY"),),
             ("tests/engine/test_conflicts.py",)),
    Mutation("a task whose end nobody has looked at is removed (L5)",
             sql("retainable_tasks", "c.kind = 'waiting' AND", "c.kind = 'none' AND"),
             ("tests/engine/test_retention.py::test_what_somebody_waits_for_stays",)),
)
