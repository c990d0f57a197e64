-- The items of some tasks' maps, in their order.
SELECT root_seq, map, item, path, state, attempt, failures, max_failures, error, task_id, task_seq, depth,
       epoch_us(available_at), epoch_us(updated_at)
FROM canard_absurd.items
WHERE root_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')))
ORDER BY root_seq, depth, position, task_seq;
