SELECT seq, input
FROM canard_absurd.tasks
WHERE seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')));
