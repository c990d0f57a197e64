-- What the database knows of the tries of one command, history included.
SELECT token, state, archived_at IS NOT NULL AS archived
FROM canard_absurd.jobs
WHERE task_seq = $task_seq AND step = $step AND ordinal = $ordinal;
