-- The names of the steps that are saved, by row of the plan.
SELECT p.kind, p.key, list(c.name ORDER BY c.ordinal)
FROM canard_absurd.planned p
JOIN canard_absurd.tasks t ON t.id = p.task_id
JOIN canard_absurd.checkpoints c ON c.task_seq = t.seq
WHERE p.pipeline = $pipeline AND c.archived_at IS NULL AND c.kind NOT IN ('waiting', 'archive')
GROUP BY p.kind, p.key;
