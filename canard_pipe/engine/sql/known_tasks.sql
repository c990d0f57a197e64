SELECT id, name, queue, priority, max_failures, input
FROM canard_absurd.tasks
WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]')));
