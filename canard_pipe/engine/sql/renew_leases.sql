-- F11, S10, S11: the greater of the old deadline and now + lease; an expired lease is not revived.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, updated_at = make_timestamp($now_us),
    deadline = greatest(t.deadline, make_timestamp($now_us + b.lease_us))
FROM rows(seq BIGINT, token VARCHAR, lease_us BIGINT) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
