UPDATE canard_absurd.runs AS r
SET ended_at = make_timestamp($now_us), exit_status = b.exit_status
FROM rows(run_id VARCHAR, exit_status INTEGER) AS b
WHERE r.run_id = b.run_id;
