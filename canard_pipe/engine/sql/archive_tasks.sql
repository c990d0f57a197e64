-- All that tasks have saved, and their commands, become history: if they run again, then from their beginning.
UPDATE canard_absurd.checkpoints AS c
SET archived_at = make_timestamp($now_us)
FROM rows(seq BIGINT) AS b
WHERE c.task_seq = b.seq AND c.archived_at IS NULL;

UPDATE canard_absurd.jobs AS j
SET archived_at = make_timestamp($now_us)
FROM rows(seq BIGINT) AS b
WHERE j.task_seq = b.seq AND j.archived_at IS NULL;

INSERT INTO canard_absurd.checkpoints
SELECT b.seq, 0, '', 'archive', 'null', 0, make_timestamp($now_us), make_timestamp($now_us), -1, NULL
FROM rows(seq BIGINT) AS b;
