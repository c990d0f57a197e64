SELECT name FROM canard_absurd.checkpoints
WHERE archived_at IS NULL AND task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')))
UNION
SELECT step FROM canard_absurd.jobs
WHERE archived_at IS NULL AND task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')));
