-- What tasks have saved, and the waits and maps that they have begun.
SELECT task_seq, ordinal, name, kind
FROM canard_absurd.checkpoints
WHERE task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]'))) AND archived_at IS NULL
ORDER BY task_seq, ordinal;
