-- What tasks were retried with: one (or the one whose item it is), or all (seq NULL).
SELECT task_seq, memory_bytes, time_seconds
FROM canard_absurd.overrides
WHERE $seq::BIGINT IS NULL OR task_seq = $seq::BIGINT
   OR task_seq IN (SELECT root_seq FROM canard_absurd.children WHERE task_seq = $seq::BIGINT);
