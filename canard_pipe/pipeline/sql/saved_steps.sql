-- The names of a task's saved steps.
SELECT name FROM canard_absurd.checkpoints WHERE task_seq = $task_seq AND archived_at IS NULL;
