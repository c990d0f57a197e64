SELECT id, state, result FROM canard_absurd.tasks WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]')));
