-- F12, S20: completing clears the error and the ownership.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'completed', result = b.result, error = NULL, updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR, result VARCHAR) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
