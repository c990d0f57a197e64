-- How many rows of the plan are in each state.
SELECT kind, state, count(*)
FROM canard_absurd.samples
WHERE pipeline = $pipeline
GROUP BY kind, state
ORDER BY kind, state;
