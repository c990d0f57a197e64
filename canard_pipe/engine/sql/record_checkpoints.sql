-- A checkpoint that joins a transition which has fenced the task already.
INSERT INTO canard_absurd.checkpoints
SELECT seq, ordinal, name, kind, value, attempt, make_timestamp($now_us), NULL, place, NULL
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","ordinal":"INTEGER","name":"VARCHAR","kind":"VARCHAR","value":"VARCHAR","attempt":"INTEGER","place":"INTEGER"}]'), recursive := true));
