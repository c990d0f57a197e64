-- F14, S36: cancelling removes the ownership at once and keeps checkpoints and the last error.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'cancelled', updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, version BIGINT) AS b
WHERE t.seq = b.seq AND t.version = b.version;
