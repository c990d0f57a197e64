-- Nobody waits for these any more: their executor ends them.
UPDATE canard_absurd.jobs AS j
SET live = FALSE, to_cancel = TRUE, state = 'cancelled'
FROM (SELECT unnest(from_json($rows::JSON, '[{"token":"VARCHAR"}]'), recursive := true)) AS b
WHERE j.token = b.token AND j.live;
