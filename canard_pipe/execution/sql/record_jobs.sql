-- One row per try of a command whose outcome the database knows; joins the transaction that follows it.
INSERT INTO canard_absurd.jobs BY NAME
SELECT task_seq, task_attempt, step, ordinal, attempt, executor, token, digest, folder, command, state, cause,
       exit_code, signal, cpus, memory_bytes, time_seconds, peak_memory_bytes, cpu_seconds, host,
       make_timestamp(started_us) AS started_at, make_timestamp(ended_us) AS ended_at
FROM (SELECT unnest(from_json($rows::JSON, '[{"task_seq":"BIGINT","task_attempt":"INTEGER","step":"VARCHAR","ordinal":"INTEGER","attempt":"INTEGER","executor":"VARCHAR","token":"VARCHAR","digest":"VARCHAR","folder":"VARCHAR","command":"VARCHAR","state":"VARCHAR","cause":"VARCHAR","exit_code":"INTEGER","signal":"VARCHAR","cpus":"DOUBLE","memory_bytes":"BIGINT","time_seconds":"DOUBLE","peak_memory_bytes":"BIGINT","cpu_seconds":"DOUBLE","host":"VARCHAR","started_us":"BIGINT","ended_us":"BIGINT"}]'), recursive := true));
