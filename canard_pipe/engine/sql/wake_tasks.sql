-- Ready since it was made: what has begun comes before tasks that were made with it (S7).
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', available_at = t.created_at, updated_at = make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","version":"BIGINT"}]'), recursive := true)) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state = 'suspended';

DELETE FROM canard_absurd.waits
WHERE task_seq IN (SELECT seq FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT"}]'), recursive := true)));
