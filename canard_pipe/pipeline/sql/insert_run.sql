INSERT INTO canard_absurd.runs
    (run_id, pipeline, pipeline_file, pipeline_digest, sheet_file, sheet_text, params, settings, versions, host, pid, started_at)
SELECT run_id, pipeline, pipeline_file, pipeline_digest, sheet_file, sheet_text, params, settings, versions, host, pid, make_timestamp($now_us)
FROM rows(run_id VARCHAR, pipeline VARCHAR, pipeline_file VARCHAR, pipeline_digest VARCHAR, sheet_file VARCHAR, sheet_text VARCHAR, params VARCHAR, settings VARCHAR, versions VARCHAR, host VARCHAR, pid BIGINT);
