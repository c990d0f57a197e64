-- The items of maps, in the transaction that suspends their parents. seq is that of an item that has run before: it is
-- made ready again, with its present input. Items inherit queue, priority and budget of failures of their root, and
-- come before tasks that were made with it: what has begun is brought to its end first.
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

INSERT INTO canard_absurd.tasks
    (id, seq, name, queue, state, priority, attempt, failures, max_failures, available_at, created_at, updated_at, version, input)
SELECT id, nextval('canard_absurd.task_seq'), name, queue, 'ready', priority, 0, 0, max_failures,
       created_at - INTERVAL 1 MICROSECOND, make_timestamp($now_us), make_timestamp($now_us), 0, input
FROM (
    SELECT b.id, b.name, b.input, p.queue, p.priority, p.max_failures, p.created_at
    FROM rows(seq BIGINT, id VARCHAR, name VARCHAR, input VARCHAR, parent_seq BIGINT, root_seq BIGINT, position INTEGER) AS b
    JOIN canard_absurd.tasks p ON p.seq = b.root_seq
    WHERE b.seq IS NULL
    ORDER BY b.parent_seq, b.position
);

INSERT INTO canard_absurd.children
SELECT t.seq, b.parent_seq, b.root_seq, b.depth, b.map, b.key, b.position, NULL
FROM rows(seq BIGINT, id VARCHAR, parent_seq BIGINT, root_seq BIGINT, depth INTEGER, map VARCHAR, key VARCHAR, position INTEGER) AS b
JOIN canard_absurd.tasks t ON t.id = b.id AND t.created_at = make_timestamp($now_us)
WHERE b.seq IS NULL;
