-- A graceful stop hands the claim back: ready at once, nothing counted.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, state = 'ready', updated_at = make_timestamp($now_us),
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, token VARCHAR) AS b
WHERE t.seq = b.seq AND t.token = b.token AND t.state = 'running' AND t.deadline > make_timestamp($now_us);
