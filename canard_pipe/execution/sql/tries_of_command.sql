-- What the database knows of the tries of one command, history included, the oldest first.
SELECT token, state, live, archived_at IS NOT NULL AS archived, attempt, task_attempt, digest, cause, folder
FROM canard_absurd.jobs
WHERE task_seq = $task_seq AND step = $step AND ordinal = $ordinal
ORDER BY attempt;
