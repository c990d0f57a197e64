-- The unfinished tasks among the given ids.
SELECT seq, version, id, state, attempt, worker, epoch_us(claimed_at)
FROM canard_absurd.tasks
WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]'))) AND state IN ('ready', 'running', 'suspended');
