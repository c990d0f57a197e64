-- F9: 14 columns without payload, the latest change first, then id.
SELECT id, name, queue, state, priority, attempt, failures, max_failures, epoch_us(available_at), epoch_us(created_at),
       epoch_us(updated_at), worker, epoch_us(deadline), error
FROM canard_absurd.tasks
WHERE ($id::VARCHAR IS NULL OR id = $id)
  AND ($queue::VARCHAR IS NULL OR queue = $queue)
  AND ($states::VARCHAR IS NULL OR state IN (SELECT unnest(from_json($states::JSON, '["VARCHAR"]'))))
ORDER BY updated_at DESC, id
LIMIT $most;
