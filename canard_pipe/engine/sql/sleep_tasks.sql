-- F16, S13, S14: marker and release in one transaction; the wake time is available_at.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', available_at = make_timestamp($now_us + b.delay_us), updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR, delay_us BIGINT) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);

INSERT INTO canard_absurd.checkpoints
SELECT b.seq, b.ordinal, b.name, 'sleep', 'null', b.attempt, make_timestamp($now_us), NULL, b.place, NULL
FROM rows(seq BIGINT, ordinal INTEGER, name VARCHAR, attempt INTEGER, place INTEGER) AS b;
