SELECT seq, version, id, attempt, worker, epoch_us(claimed_at), token, epoch_us(deadline)
FROM canard_absurd.tasks
WHERE state = 'running'
ORDER BY seq;
