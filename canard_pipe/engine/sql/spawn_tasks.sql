-- F6: rows that are not there yet; the caller compares those that were.
INSERT INTO canard_absurd.tasks
    (id, seq, name, queue, state, priority, attempt, failures, max_failures, available_at, created_at, updated_at, version, input)
SELECT b.id, nextval('canard_absurd.task_seq'), b.name, b.queue, 'ready', b.priority, 0, 0, b.max_failures,
       make_timestamp($now_us), make_timestamp($now_us), make_timestamp($now_us), 0, b.input
FROM rows(position BIGINT, id VARCHAR, name VARCHAR, queue VARCHAR, priority INTEGER, max_failures INTEGER, input VARCHAR) AS b
ORDER BY b.position;
