-- How many samples of the plan have saved each step, in the order of the steps.
SELECT c.name, count(*)
FROM canard_absurd.planned p
JOIN canard_absurd.tasks t ON t.id = p.task_id
JOIN canard_absurd.checkpoints c ON c.task_seq = t.seq
WHERE p.pipeline = $pipeline AND p.kind = 'sample' AND NOT p.retired AND c.archived_at IS NULL
  AND c.kind NOT IN ('waiting', 'mapping')
GROUP BY c.name
ORDER BY avg(c.ordinal), c.name;
