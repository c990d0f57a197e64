-- Rows of the plan: in the order of the sheet, or those that need somebody first. states and keys NULL: all.
SELECT kind, function, sample, state, attempt, failures, max_failures, error, skipped_because, blocked_by, folder, generation,
       task_id, task_seq, line, epoch_us(available_at), epoch_us(updated_at), changed_because
FROM canard_absurd.samples
WHERE pipeline = $pipeline
  AND ($states::VARCHAR IS NULL OR state IN (SELECT unnest(from_json($states::JSON, '["VARCHAR"]'))))
  AND ($keys::VARCHAR IS NULL OR sample IN (SELECT unnest(from_json($keys::JSON, '["VARCHAR"]'))))
ORDER BY CASE WHEN $urgent_first THEN coalesce(list_position(
             ['failed', 'blocked', 'cancelled', 'changed', 'running', 'queued', 'waiting', 'skipped', 'done', 'retired'],
             state), 0) ELSE 0 END,
         CASE kind WHEN 'once' THEN 0 WHEN 'sample' THEN 1 ELSE 2 END, position, function
LIMIT $most;
