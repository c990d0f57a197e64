-- The steps that tasks of the plan have saved or run commands in.
SELECT DISTINCT name FROM (
    SELECT c.name
    FROM canard_absurd.planned p
    JOIN canard_absurd.tasks t ON t.id = p.task_id
    JOIN canard_absurd.checkpoints c ON c.task_seq = t.seq
    WHERE p.pipeline = $pipeline AND c.archived_at IS NULL AND c.kind NOT IN ('waiting', 'mapping')
    UNION ALL
    SELECT j.step
    FROM canard_absurd.planned p
    JOIN canard_absurd.tasks t ON t.id = p.task_id
    JOIN canard_absurd.jobs j ON j.task_seq = t.seq
    WHERE p.pipeline = $pipeline AND j.step <> ''
)
ORDER BY name;
