-- The one way out of a final state: ready again, failures 0, with its present input (G14). Fenced by the version.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', failures = 0, error = NULL, result = NULL, updated_at = make_timestamp($now_us),
    available_at = make_timestamp($now_us), input = coalesce(b.input, t.input)
FROM rows(seq BIGINT, version BIGINT, input VARCHAR) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state <> 'running';

DELETE FROM canard_absurd.waits AS w
USING rows(seq BIGINT) AS b
WHERE w.task_seq = b.seq;
