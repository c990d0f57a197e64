INSERT INTO canard_absurd.waits
SELECT seq, kind, key
FROM (SELECT unnest(from_json($rows::JSON, '[{"seq":"BIGINT","kind":"VARCHAR","key":"VARCHAR"}]'), recursive := true));
