-- The saved steps of the rows of the plan with the code that made them.
SELECT c.name, c.code, p.kind, list(p.key ORDER BY p.position)
FROM canard_absurd.planned p
JOIN canard_absurd.tasks t ON t.id = p.task_id
JOIN canard_absurd.checkpoints c ON c.task_seq = t.seq
WHERE p.pipeline = $pipeline AND NOT p.retired AND c.archived_at IS NULL AND c.code IS NOT NULL
GROUP BY c.name, c.code, p.kind
ORDER BY min(c.ordinal), c.name, c.code;
