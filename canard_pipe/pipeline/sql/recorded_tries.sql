-- Every try that has ended, with the task it belongs to and the row of the plan that this is for: kind and sample_state
-- are NULL for a task that no row of the plan names any more (an older generation).
SELECT j.folder, j.step, j.ordinal, j.attempt, j.state, epoch_us(coalesce(j.ended_at, j.started_at)), t.seq, t.state,
       root.seq, root.state, s.kind, s.state, coalesce(s.sample, root.id)
FROM canard_absurd.jobs j
JOIN canard_absurd.tasks t ON t.seq = j.task_seq
LEFT JOIN canard_absurd.children c ON c.task_seq = t.seq
JOIN canard_absurd.tasks root ON root.seq = coalesce(c.root_seq, t.seq)
LEFT JOIN canard_absurd.samples s ON s.task_id = root.id
WHERE $root::BIGINT IS NULL OR root.seq = $root::BIGINT
ORDER BY j.folder;
