-- One row per try of a command: with its outcome, joining the transaction that follows it; or live, with the suspension
-- of its task, before anything is started.
INSERT INTO canard_absurd.jobs BY NAME
SELECT task_seq, task_attempt, step, ordinal, attempt, executor, job_name, token, digest, folder, command, state,
       coalesce(live, FALSE) AS live, FALSE AS to_cancel, cause, exit_code, signal, cpus, memory_bytes, time_seconds,
       peak_memory_bytes, cpu_seconds, read_bytes, written_bytes, host,
       CASE WHEN live THEN make_timestamp($now_us) END AS recorded_at,
       make_timestamp(started_us) AS started_at, make_timestamp(ended_us) AS ended_at
FROM (SELECT unnest(from_json($rows::JSON, '[{"task_seq":"BIGINT","task_attempt":"INTEGER","step":"VARCHAR","ordinal":"INTEGER","attempt":"INTEGER","executor":"VARCHAR","job_name":"VARCHAR","token":"VARCHAR","digest":"VARCHAR","folder":"VARCHAR","command":"VARCHAR","state":"VARCHAR","live":"BOOLEAN","cause":"VARCHAR","exit_code":"INTEGER","signal":"VARCHAR","cpus":"DOUBLE","memory_bytes":"BIGINT","time_seconds":"DOUBLE","peak_memory_bytes":"BIGINT","cpu_seconds":"DOUBLE","read_bytes":"BIGINT","written_bytes":"BIGINT","host":"VARCHAR","started_us":"BIGINT","ended_us":"BIGINT"}]'), recursive := true));
