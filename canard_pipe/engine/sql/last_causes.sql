-- Why tasks failed last, as JSON.
SELECT task_seq, arg_max(cause, attempt)
FROM canard_absurd.attempts
WHERE task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]'))) AND outcome IN ('failed', 'expired')
GROUP BY task_seq;
