-- The items of maps, in the transaction that suspends their parents. Items inherit queue, priority and budget of failures
-- of their root, and come before tasks that were made with it: what has begun is brought to its end first.
INSERT INTO canard_absurd.tasks
    (id, seq, name, queue, state, priority, attempt, failures, max_failures, available_at, created_at, updated_at, version, input)
SELECT id, nextval('canard_absurd.task_seq'), name, queue, 'ready', priority, 0, 0, max_failures,
       created_at - INTERVAL 1 MICROSECOND, make_timestamp($now_us), make_timestamp($now_us), 0, input
FROM (
    SELECT b.id, b.name, b.input, p.queue, p.priority, p.max_failures, p.created_at
    FROM rows(id VARCHAR, name VARCHAR, input VARCHAR, parent_seq BIGINT, root_seq BIGINT, position INTEGER) AS b
    JOIN canard_absurd.tasks p ON p.seq = b.root_seq
    ORDER BY b.parent_seq, b.position
);

INSERT INTO canard_absurd.children
SELECT t.seq, b.parent_seq, b.root_seq, b.depth, b.map, b.key, b.position, NULL
FROM rows(id VARCHAR, parent_seq BIGINT, root_seq BIGINT, depth INTEGER, map VARCHAR, key VARCHAR, position INTEGER) AS b
JOIN canard_absurd.tasks t ON t.id = b.id AND t.created_at = make_timestamp($now_us);
