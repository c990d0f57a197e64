-- The unfinished items of tasks, at any depth.
SELECT t.id
FROM canard_absurd.tasks r
JOIN canard_absurd.children c ON c.root_seq = r.seq AND c.archived_at IS NULL
JOIN canard_absurd.tasks t ON t.seq = c.task_seq AND t.state IN ('ready', 'running', 'suspended')
WHERE r.id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]')));
