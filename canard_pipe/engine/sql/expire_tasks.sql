-- G27: changes only state, failures, error, ownership and updated_at.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'failed', failures = t.failures + 1, error = 'worker lease expired',
    updated_at = make_timestamp($now_us), worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, version BIGINT) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state = 'running';
