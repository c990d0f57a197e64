SELECT name, value
FROM canard_absurd.events
WHERE name IN (SELECT unnest(from_json($names::JSON, '["VARCHAR"]')));
