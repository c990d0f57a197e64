-- Saved steps of some tasks, in the order saved.
SELECT task_seq, name, kind, ordinal, attempt, epoch_us(saved_at)
FROM canard_absurd.checkpoints
WHERE task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]'))) AND archived_at IS NULL
  AND kind NOT IN ('waiting', 'mapping')
ORDER BY task_seq, ordinal;
