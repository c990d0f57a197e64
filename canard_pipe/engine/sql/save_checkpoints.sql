-- F15, G13: the fence renews the lease; the row is written in the same transaction. The caller knows what is saved.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, updated_at = make_timestamp($now_us),
    deadline = greatest(t.deadline, make_timestamp($now_us + b.lease_us))
FROM rows(seq BIGINT, token VARCHAR, lease_us BIGINT) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);

INSERT INTO canard_absurd.checkpoints
SELECT b.seq, b.ordinal, b.name, b.kind, b.value, b.attempt, make_timestamp($now_us), NULL, b.place, b.code
FROM rows(seq BIGINT, ordinal INTEGER, name VARCHAR, kind VARCHAR, value VARCHAR, attempt INTEGER, place INTEGER, code VARCHAR) AS b;
