SELECT queue, state, count(*)
FROM canard_absurd.tasks
GROUP BY queue, state
ORDER BY queue, state;
