-- Checkpoints that no longer hold become history, and with them the commands of every step that is not saved now. The
-- marker, the row of the first of them, tells the commands of what follows from those before (steps_archived.sql).
UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM rows(task_seq BIGINT, ordinal INTEGER) AS b
WHERE c.task_seq = b.task_seq AND c.ordinal = b.ordinal AND c.archived_at IS NULL;

UPDATE canard_absurd.jobs AS j
SET archived_at = make_timestamp($now_us)
FROM (SELECT DISTINCT task_seq FROM rows(task_seq BIGINT)) AS b
WHERE j.task_seq = b.task_seq AND j.archived_at IS NULL
  AND j.step NOT IN (
      SELECT c.name FROM canard_absurd.checkpoints c WHERE c.task_seq = b.task_seq AND c.archived_at IS NULL);

INSERT INTO canard_absurd.checkpoints
SELECT task_seq, 0, arg_min(step, ordinal), 'archive', 'null', 0, make_timestamp($now_us), make_timestamp($now_us), -1, NULL
FROM rows(task_seq BIGINT, ordinal INTEGER, step VARCHAR)
GROUP BY task_seq;
