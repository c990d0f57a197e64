-- What each row of a pipeline, with its items, has published.
SELECT t.seq, count(*), sum(u.size)::BIGINT
FROM canard_absurd.outputs u
LEFT JOIN canard_absurd.children c ON c.task_seq = u.task_seq
JOIN canard_absurd.tasks t ON t.seq = coalesce(c.root_seq, u.task_seq)
JOIN canard_absurd.planned p ON p.task_id = t.id
WHERE p.pipeline = $pipeline AND u.state = 'published'
GROUP BY t.seq
ORDER BY t.seq;
