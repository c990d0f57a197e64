-- The items of one map of a task, those of an archived making too, in their order.
SELECT c.key, t.id, t.seq, t.state, t.result, t.error, c.archived_at IS NOT NULL
FROM canard_absurd.children c JOIN canard_absurd.tasks t ON t.seq = c.task_seq
WHERE c.parent_seq = $parent_seq AND c.map = $map
ORDER BY c.position, t.seq;
