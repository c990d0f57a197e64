-- F13, S21: counts one failure, unless that one is not the task's fault; available_at is set even when the task ends
-- failed. A fatal error uses no retry.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, failures = t.failures + b.counted::INTEGER, error = b.error, updated_at = make_timestamp($now_us),
    state = CASE WHEN b.fatal OR (b.counted AND t.failures + 1 >= t.max_failures) THEN 'failed' ELSE 'ready' END,
    available_at = make_timestamp($now_us + b.delay_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR, error VARCHAR, delay_us BIGINT, fatal BOOLEAN, counted BOOLEAN) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
