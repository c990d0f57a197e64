-- Every try of every command of a pipeline's rows and of their items, as far as recorded; the order is that of the plan.
SELECT p.kind, p.key, t.seq,
       CASE WHEN c.task_seq IS NULL THEN ''
            ELSE coalesce(o.map || '/' || o.key || '/', '') || c.map || '/' || c.key END,
       coalesce(c.map, ''), j.step, j.ordinal, j.attempt, j.state, j.cause, j.exit_code, j.signal, j.executor, j.job_id, j.host,
       j.cpus, j.memory_bytes, j.peak_memory_bytes, j.cpu_seconds, j.read_bytes, j.written_bytes,
       epoch_us(coalesce(j.submitted_at, j.recorded_at)), epoch_us(j.started_at), epoch_us(j.ended_at), j.folder, j.live
FROM canard_absurd.jobs j
LEFT JOIN canard_absurd.children c ON c.task_seq = j.task_seq
LEFT JOIN canard_absurd.children o ON o.task_seq = c.parent_seq
JOIN canard_absurd.tasks t ON t.seq = coalesce(c.root_seq, j.task_seq)
JOIN canard_absurd.planned p ON p.task_id = t.id
WHERE p.pipeline = $pipeline
ORDER BY CASE p.kind WHEN 'once' THEN 0 WHEN 'sample' THEN 1 ELSE 2 END, p.position, p.name,
         coalesce(j.started_at, j.submitted_at, j.recorded_at, j.ended_at), j.step, j.ordinal, j.attempt;
