-- A wait or a map has come to its end: the marker that it had begun becomes history.
UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM rows(task_seq BIGINT, ordinal INTEGER) AS b
WHERE c.task_seq = b.task_seq AND c.ordinal = b.ordinal AND c.kind IN ('waiting', 'mapping') AND c.archived_at IS NULL;
