-- Every try of every command of one task, the latest last.
SELECT task_attempt, step, ordinal, attempt, executor, job_id, folder, command, state, cause, exit_code, signal,
       peak_memory_bytes, memory_bytes, time_seconds, host, epoch_us(started_at), epoch_us(ended_at), archived_at IS NOT NULL
FROM canard_absurd.jobs
WHERE task_seq = $seq
ORDER BY coalesce(ended_at, started_at), step, ordinal, attempt;
