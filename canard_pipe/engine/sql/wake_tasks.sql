-- Ready since it was made: what has begun comes before tasks that were made with it (S7).
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', available_at = t.created_at, updated_at = make_timestamp($now_us)
FROM rows(seq BIGINT, version BIGINT) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state = 'suspended';

DELETE FROM canard_absurd.waits AS w
USING rows(seq BIGINT) AS b
WHERE w.task_seq = b.seq;
