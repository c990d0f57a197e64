-- Archives checkpoints and commands of tasks: all, or those from the named step on (an unsaved step archives its
-- own commands only).
UPDATE canard_absurd.jobs AS j
SET archived_at = make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","from_step":"VARCHAR"}]'), recursive := true)) AS b
WHERE j.task_seq = b.seq AND j.archived_at IS NULL
  AND (b.from_step IS NULL OR j.step = b.from_step OR j.step IN (
      SELECT later.name FROM canard_absurd.checkpoints later JOIN canard_absurd.checkpoints first
          ON first.task_seq = later.task_seq AND first.name = b.from_step AND first.archived_at IS NULL
      WHERE later.task_seq = b.seq AND later.archived_at IS NULL AND later.ordinal >= first.ordinal));

UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","from_step":"VARCHAR"}]'), recursive := true)) AS b
WHERE c.task_seq = b.seq AND c.archived_at IS NULL
  AND (b.from_step IS NULL OR c.ordinal >= (
      SELECT f.ordinal FROM canard_absurd.checkpoints f
      WHERE f.task_seq = b.seq AND f.name = b.from_step AND f.archived_at IS NULL));
