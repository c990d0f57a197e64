SELECT seq, version, id, attempt, worker, epoch_us(claimed_at)
FROM canard_absurd.tasks
WHERE state = 'running'
ORDER BY seq;
