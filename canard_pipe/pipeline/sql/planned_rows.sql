-- What was planned before, with the state of each row's task.
SELECT p.kind, p.name, p.key, p.folder, p.position, p.line, p.generation, p.task_id, p.made_from, p.because, p.changed, p.retired,
       t.seq, t.version, t.state
FROM canard_absurd.planned p LEFT JOIN canard_absurd.tasks t ON t.id = p.task_id
WHERE p.pipeline = $pipeline
ORDER BY p.position;
