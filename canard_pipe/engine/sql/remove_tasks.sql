-- L5. The fence first: for DuckDB, a DELETE and an UPDATE of one row by two transactions do not exclude each other,
-- two updates of one column do.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1
FROM rows(seq BIGINT, version BIGINT) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state IN ('completed', 'failed', 'cancelled');

DELETE FROM canard_absurd.checkpoints AS c
USING rows(seq BIGINT) AS b
WHERE c.task_seq = b.seq;

DELETE FROM canard_absurd.attempts AS a
USING rows(seq BIGINT) AS b
WHERE a.task_seq = b.seq;

DELETE FROM canard_absurd.jobs AS j
USING rows(seq BIGINT) AS b
WHERE j.task_seq = b.seq;

DELETE FROM canard_absurd.children AS c
USING rows(seq BIGINT) AS b
WHERE c.task_seq = b.seq;

DELETE FROM canard_absurd.overrides AS o
USING rows(seq BIGINT) AS b
WHERE o.task_seq = b.seq;

DELETE FROM canard_absurd.tasks AS t
USING rows(seq BIGINT) AS b
WHERE t.seq = b.seq;
