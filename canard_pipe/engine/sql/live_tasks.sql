-- The unfinished tasks among the given ids, and the unfinished items of their maps.
WITH RECURSIVE tree AS (
    SELECT seq FROM canard_absurd.tasks WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]')))
    UNION
    SELECT c.task_seq FROM tree JOIN canard_absurd.children c ON c.parent_seq = tree.seq
)
SELECT seq, version, id, state, attempt, worker, epoch_us(claimed_at)
FROM canard_absurd.tasks
WHERE seq IN (SELECT seq FROM tree) AND state IN ('ready', 'running', 'suspended');
