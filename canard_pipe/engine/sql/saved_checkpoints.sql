SELECT task_seq, ordinal, name, kind, value, place
FROM canard_absurd.checkpoints
WHERE task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]'))) AND archived_at IS NULL
ORDER BY task_seq, ordinal;
