-- Items that have run before and that a map asks for again: ready with their present input, in the transaction that
-- suspends their parent.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', failures = 0, error = NULL, result = NULL, name = b.name, input = b.input,
    available_at = make_timestamp($now_us), updated_at = make_timestamp($now_us)
FROM rows(seq BIGINT, name VARCHAR, input VARCHAR) AS b
WHERE t.seq = b.seq AND t.state IN ('completed', 'failed', 'cancelled');

UPDATE canard_absurd.children AS c
SET position = b.position, archived_at = NULL
FROM rows(seq BIGINT, position INTEGER) AS b
WHERE c.task_seq = b.seq;

DELETE FROM canard_absurd.waits AS w
USING rows(seq BIGINT) AS b
WHERE w.task_seq = b.seq;
