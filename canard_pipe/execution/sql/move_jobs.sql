-- What an executor has found out about its live jobs, many at once. What is NULL stays as it is (an array_index of -1
-- takes it away), and nothing that was given up comes alive again.
UPDATE canard_absurd.jobs AS j
SET state = b.state, live = j.live AND b.live, to_cancel = coalesce(b.to_cancel, j.to_cancel), cause = coalesce(b.cause, j.cause),
    reason = coalesce(b.reason, j.reason), job_id = coalesce(b.job_id, j.job_id), cluster = coalesce(b.cluster, j.cluster),
    job_name = coalesce(b.job_name, j.job_name), array_index = nullif(coalesce(b.array_index, j.array_index), -1),
    host = coalesce(b.host, j.host),
    submitted_at = coalesce(make_timestamp(b.submitted_us), j.submitted_at),
    started_at = coalesce(make_timestamp(b.started_us), j.started_at),
    ended_at = coalesce(make_timestamp(b.ended_us), j.ended_at)
FROM rows(token VARCHAR, state VARCHAR, live BOOLEAN, to_cancel BOOLEAN, cause VARCHAR, reason VARCHAR, job_id VARCHAR, cluster VARCHAR, job_name VARCHAR, array_index INTEGER, host VARCHAR, submitted_us BIGINT, started_us BIGINT, ended_us BIGINT) AS b
WHERE j.token = b.token AND (j.live OR j.to_cancel);
