-- One row per claim, when it ends.
INSERT INTO canard_absurd.attempts
SELECT seq, attempt, worker, make_timestamp(started_us), make_timestamp($now_us), outcome, error, cause
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","attempt":"INTEGER","worker":"VARCHAR","started_us":"BIGINT","outcome":"VARCHAR","error":"VARCHAR","cause":"VARCHAR"}]'), recursive := true));
