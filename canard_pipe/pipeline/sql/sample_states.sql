SELECT kind, function, sample, state, task_id, task_seq, attempt, failures, max_failures, error, skipped_because, blocked_by,
       folder, generation, position, line
FROM canard_absurd.samples
WHERE pipeline = $pipeline
ORDER BY position, kind;
