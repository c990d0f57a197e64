-- Archives the named step of tasks and all that came after it: checkpoints, and the commands of every step but those
-- saved before it. The marker tells the commands of the next attempts from those before (steps_archived.sql).
UPDATE canard_absurd.jobs AS j
SET archived_at = make_timestamp($now_us)
FROM rows(seq BIGINT, from_step VARCHAR) AS b
WHERE j.task_seq = b.seq AND j.archived_at IS NULL
  AND j.step NOT IN (
      SELECT earlier.name FROM canard_absurd.checkpoints earlier
      WHERE earlier.task_seq = b.seq AND earlier.archived_at IS NULL AND earlier.ordinal < (
          SELECT coalesce(min(named.ordinal), 2147483647) FROM canard_absurd.checkpoints named
          WHERE named.task_seq = b.seq AND named.name = b.from_step AND named.archived_at IS NULL));

UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM rows(seq BIGINT, from_step VARCHAR) AS b
WHERE c.task_seq = b.seq AND c.archived_at IS NULL
  AND c.ordinal >= (
      SELECT f.ordinal FROM canard_absurd.checkpoints f
      WHERE f.task_seq = b.seq AND f.name = b.from_step AND f.archived_at IS NULL);

INSERT INTO canard_absurd.checkpoints
SELECT b.seq, 0, b.from_step, 'archive', 'null', 0, make_timestamp($now_us), make_timestamp($now_us), -1, NULL
FROM rows(seq BIGINT, from_step VARCHAR) AS b;
