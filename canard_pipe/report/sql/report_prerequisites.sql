-- What one row of the plan needs first: how many rows of each function are in which state.
SELECT s.function, s.kind, s.state, count(*), min(s.sample)
FROM canard_absurd.planned p
JOIN canard_absurd.samples s ON s.pipeline = p.pipeline AND list_contains(p.after, s.function)
WHERE p.pipeline = $pipeline AND p.kind = $kind AND p.key = $key
GROUP BY s.function, s.kind, s.state
ORDER BY s.function, s.state;
