SELECT id, state, result, error
FROM canard_absurd.tasks
WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]'))) AND state IN ('completed', 'failed', 'cancelled');
