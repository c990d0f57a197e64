-- F14, S36: cancelling removes the ownership at once and keeps checkpoints and the last error. What a suspended task
-- waited for is not needed for it any more.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'cancelled', updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, version BIGINT) AS b
WHERE t.seq = b.seq AND t.version = b.version;

DELETE FROM canard_absurd.waits AS w
USING rows(seq BIGINT) AS b
WHERE w.task_seq = b.seq;
