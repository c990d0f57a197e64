-- Nobody waits for these any more: their executor ends them. Until they are gone the state tells how far they had come.
UPDATE canard_absurd.jobs AS j
SET live = FALSE, to_cancel = TRUE
FROM rows(token VARCHAR) AS b
WHERE j.token = b.token AND j.live;
