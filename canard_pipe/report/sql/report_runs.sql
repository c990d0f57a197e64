-- The latest runs, the latest first.
SELECT run_id, pipeline, pipeline_file, sheet_file, params, settings, host, pid, epoch_us(started_at), epoch_us(ended_at), exit_status
FROM canard_absurd.runs
ORDER BY started_at DESC, run_id
LIMIT $most;
