-- The history of one task: its claims, the first first.
SELECT attempt, worker, epoch_us(started_at), epoch_us(ended_at), outcome, error, cause
FROM canard_absurd.attempts
WHERE task_seq = $seq
ORDER BY attempt, ended_at;
