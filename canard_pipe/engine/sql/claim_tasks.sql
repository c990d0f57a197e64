-- F7, S3, S5: one statement takes them all; the version read with the candidate is the fence.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'running', attempt = t.attempt + 1, failures = t.failures + b.expired,
    worker = $worker, token = b.token, claimed_at = make_timestamp($now_us),
    deadline = make_timestamp($deadline_us), updated_at = make_timestamp($now_us),
    error = CASE WHEN b.expired = 1 THEN 'worker lease expired' ELSE t.error END
FROM rows(seq BIGINT, version BIGINT, expired INTEGER, token VARCHAR) AS b
WHERE t.seq = b.seq AND t.version = b.version;
