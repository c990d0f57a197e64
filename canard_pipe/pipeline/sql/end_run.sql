UPDATE canard_absurd.runs AS r
SET ended_at = make_timestamp($now_us), exit_status = b.exit_status
FROM (SELECT unnest(from_json($rows::JSON, '[{"run_id":"VARCHAR","exit_status":"INTEGER"}]'), recursive := true)) AS b
WHERE r.run_id = b.run_id;
