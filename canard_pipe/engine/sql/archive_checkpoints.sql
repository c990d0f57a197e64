-- Checkpoints that no longer hold become history, and with them the commands of their steps.
UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"task_seq":"BIGINT","ordinal":"INTEGER"}]'), recursive := true)) AS b
WHERE c.task_seq = b.task_seq AND c.ordinal = b.ordinal AND c.archived_at IS NULL;

UPDATE canard_absurd.jobs AS j
SET archived_at = make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"task_seq":"BIGINT","step":"VARCHAR"}]'), recursive := true)) AS b
WHERE j.task_seq = b.task_seq AND j.step = b.step AND j.archived_at IS NULL;
