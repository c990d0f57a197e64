-- Where a task stands among parents and items; no row for one that nobody mapped.
SELECT depth, root_seq FROM canard_absurd.children WHERE task_seq = $task_seq;
