-- With what one run ran.
SELECT versions, pipeline_digest
FROM canard_absurd.runs
WHERE run_id = $run_id;
