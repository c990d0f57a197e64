-- What one task has published.
SELECT target, state, size
FROM canard_absurd.outputs
WHERE task_seq = $seq
ORDER BY target;
