SELECT seq, epoch_us(deadline)
FROM canard_absurd.tasks
WHERE state = 'running'
ORDER BY seq;
