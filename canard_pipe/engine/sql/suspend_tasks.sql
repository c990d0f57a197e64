-- The task gives up its claim and waits; wake_tasks decides from what is committed, so no wake-up is lost.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'suspended', updated_at = make_timestamp($now_us),
    available_at = CASE WHEN b.until_us IS NULL THEN TIMESTAMP '9999-12-31' ELSE make_timestamp(b.until_us) END,
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR, until_us BIGINT) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
