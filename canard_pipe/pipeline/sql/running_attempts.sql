-- The attempts that hold a lease: their staging files are at work.
SELECT seq, attempt FROM canard_absurd.tasks WHERE state = 'running';
