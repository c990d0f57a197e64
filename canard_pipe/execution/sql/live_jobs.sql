-- The jobs of one executor that may still be at work, in the order in which they were recorded. unwanted: its task does
-- not wait for it any more, since that has ended or its steps were archived.
SELECT j.token, j.state, j.live, j.to_cancel, j.job_name, j.job_id, j.cluster, j.folder, j.step, j.command, j.cpus,
       j.memory_bytes, j.time_seconds, epoch_us(j.recorded_at), epoch_us(j.submitted_at), epoch_us(j.started_at),
       t.id, j.reason, j.array_index,
       j.archived_at IS NOT NULL OR t.id IS NULL OR t.state IN ('completed', 'failed', 'cancelled') AS unwanted
FROM canard_absurd.jobs j LEFT JOIN canard_absurd.tasks t ON t.seq = j.task_seq
WHERE j.executor = $executor AND (j.live OR j.to_cancel)
ORDER BY j.recorded_at, j.task_seq, j.ordinal;
