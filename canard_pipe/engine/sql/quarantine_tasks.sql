-- G18, S31: what cannot be read is set aside at once, with no failure counted, so that it is not claimed for ever.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'failed', error = b.error, updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR, error VARCHAR) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
