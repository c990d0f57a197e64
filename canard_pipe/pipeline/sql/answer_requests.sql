UPDATE canard_absurd.requests AS r
SET answered_at = make_timestamp($now_us), answer = b.answer
FROM (SELECT unnest(from_json($rows::JSON, '[{"request_id":"VARCHAR","answer":"VARCHAR"}]'), recursive := true)) AS b
WHERE r.request_id = b.request_id;
