-- The handler has taken in how a command ended whose row was there before.
UPDATE canard_absurd.jobs AS j
SET state = b.state, live = FALSE, cause = b.cause, exit_code = b.exit_code, signal = b.signal,
    peak_memory_bytes = b.peak_memory_bytes, cpu_seconds = b.cpu_seconds,
    read_bytes = b.read_bytes, written_bytes = b.written_bytes, host = coalesce(b.host, j.host),
    started_at = coalesce(make_timestamp(b.started_us), j.started_at),
    ended_at = coalesce(make_timestamp(b.ended_us), j.ended_at)
FROM rows(token VARCHAR, state VARCHAR, cause VARCHAR, exit_code INTEGER, signal VARCHAR, peak_memory_bytes BIGINT, cpu_seconds DOUBLE, read_bytes BIGINT, written_bytes BIGINT, host VARCHAR, started_us BIGINT, ended_us BIGINT) AS b
WHERE j.token = b.token;
