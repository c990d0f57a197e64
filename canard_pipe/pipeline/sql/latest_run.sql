SELECT run_id, pipeline, pipeline_file, sheet_file, params, settings
FROM canard_absurd.runs
ORDER BY started_at DESC
LIMIT 1;
