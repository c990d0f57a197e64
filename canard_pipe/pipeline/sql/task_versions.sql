SELECT id, seq, version, state FROM canard_absurd.tasks WHERE id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]')));
