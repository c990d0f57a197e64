-- Tasks of the pipeline that could still move, among the names that may run now.
SELECT count(*)
FROM canard_absurd.tasks t
WHERE t.queue = $queue AND t.state IN ('ready', 'running', 'suspended')
  AND t.name IN (SELECT unnest(from_json($names::JSON, '["VARCHAR"]')))
  AND ($ids::VARCHAR IS NULL OR t.id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]'))));
