-- The items of a task, at any depth, with where each is; the first of their maps first.
SELECT c.task_seq, c.parent_seq, c.map, c.key, t.state, t.id,
       coalesce(o.map || '/' || o.key || '/', '') || c.map || '/' || c.key
FROM canard_absurd.children c
JOIN canard_absurd.tasks t ON t.seq = c.task_seq
LEFT JOIN canard_absurd.children o ON o.task_seq = c.parent_seq
WHERE c.root_seq = $root_seq AND c.archived_at IS NULL
ORDER BY c.depth, c.position;
