-- A dead owner's work costs nothing: ready at once, failures unchanged; or failed when the task kills every run.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, updated_at = make_timestamp($now_us),
    state = CASE WHEN b.kills THEN 'failed' ELSE 'ready' END,
    error = CASE WHEN b.kills THEN 'kills the run: ' || b.runs || ' runs in a row died while it ran' ELSE t.error END,
    worker = NULL, token = NULL, claimed_at = NULL, deadline = NULL
FROM rows(seq BIGINT, version BIGINT, kills BOOLEAN, runs INTEGER) AS b
WHERE t.seq = b.seq AND t.version = b.version AND t.state = 'running';
