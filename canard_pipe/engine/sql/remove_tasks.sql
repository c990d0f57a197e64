-- L5. The fence first: for DuckDB, a DELETE and an UPDATE of one row by two transactions do not exclude each other,
-- two updates of one column do.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","version":"BIGINT"}]'), recursive := true)) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state IN ('completed', 'failed', 'cancelled');

DELETE FROM canard_absurd.checkpoints
WHERE task_seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));

DELETE FROM canard_absurd.attempts
WHERE task_seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));

DELETE FROM canard_absurd.jobs
WHERE task_seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));

DELETE FROM canard_absurd.children
WHERE task_seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));

DELETE FROM canard_absurd.tasks
WHERE seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));
