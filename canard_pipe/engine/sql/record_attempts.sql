-- One row per claim, when it ends.
INSERT INTO canard_absurd.attempts
SELECT b.seq, b.attempt, b.worker, make_timestamp(b.started_us), make_timestamp($now_us), b.outcome, b.error, b.cause
FROM rows(seq BIGINT, attempt INTEGER, worker VARCHAR, started_us BIGINT, outcome VARCHAR, error VARCHAR, cause VARCHAR) AS b;
