SELECT count(*)
FROM canard_absurd.planned p LEFT JOIN canard_absurd.tasks t ON t.id = p.task_id
WHERE p.pipeline = $pipeline AND p.kind = 'once' AND NOT p.retired AND t.state IS DISTINCT FROM 'completed';
