-- One row per try of a command: with its outcome, joining the transaction that follows it; or live, with the suspension
-- of its task, before anything is started.
INSERT INTO canard_absurd.jobs
    (task_seq, task_attempt, step, ordinal, attempt, executor, job_name, token, digest, folder, command, state, live, to_cancel,
     cause, exit_code, signal, cpus, memory_bytes, time_seconds, peak_memory_bytes, cpu_seconds, read_bytes, written_bytes, host,
     recorded_at, started_at, ended_at)
SELECT b.task_seq, b.task_attempt, b.step, b.ordinal, b.attempt, b.executor, b.job_name, b.token, b.digest, b.folder,
       b.command, b.state, coalesce(b.live, FALSE), FALSE, b.cause, b.exit_code, b.signal, b.cpus, b.memory_bytes,
       b.time_seconds, b.peak_memory_bytes, b.cpu_seconds, b.read_bytes, b.written_bytes, b.host,
       CASE WHEN b.live THEN make_timestamp($now_us) END, make_timestamp(b.started_us), make_timestamp(b.ended_us)
FROM rows(task_seq BIGINT, task_attempt INTEGER, step VARCHAR, ordinal INTEGER, attempt INTEGER, executor VARCHAR, job_name VARCHAR, token VARCHAR, digest VARCHAR, folder VARCHAR, command VARCHAR, state VARCHAR, live BOOLEAN, cause VARCHAR, exit_code INTEGER, signal VARCHAR, cpus DOUBLE, memory_bytes BIGINT, time_seconds DOUBLE, peak_memory_bytes BIGINT, cpu_seconds DOUBLE, read_bytes BIGINT, written_bytes BIGINT, host VARCHAR, started_us BIGINT, ended_us BIGINT) AS b;
