-- F15, G13: the fence renews the lease; the row is written in the same transaction. The caller knows what is saved.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, updated_at = make_timestamp($now_us),
    deadline = greatest(t.deadline, make_timestamp($now_us + b.lease_us))
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","token":"VARCHAR","lease_us":"BIGINT"}]'), recursive := true)) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);

INSERT INTO canard_absurd.checkpoints
SELECT seq, ordinal, name, kind, value, attempt, make_timestamp($now_us), NULL, place, code
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","ordinal":"INTEGER","name":"VARCHAR","kind":"VARCHAR","value":"VARCHAR","attempt":"INTEGER","place":"INTEGER","code":"VARCHAR"}]'), recursive := true));
