-- The latest command of each of some tasks.
SELECT task_seq, step, state, cause, exit_code, signal, command, live
FROM canard_absurd.jobs
WHERE task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')))
QUALIFY row_number() OVER (PARTITION BY task_seq ORDER BY coalesce(ended_at, started_at) DESC NULLS FIRST, attempt DESC) = 1;
