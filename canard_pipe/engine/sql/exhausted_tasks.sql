-- S4, S6, S45: expired leases of last attempts, oldest deadline first. queue NULL is all queues.
SELECT seq, version, id, attempt, worker, epoch_us(claimed_at)
FROM canard_absurd.tasks
WHERE state = 'running' AND deadline <= make_timestamp($now_us) AND failures + 1 >= max_failures
  AND ($queue::VARCHAR IS NULL OR queue = $queue)
ORDER BY deadline, seq
LIMIT $most;
