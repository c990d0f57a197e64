-- Tasks, and samples whose items they are, with a result that is accepted and not known to be in its place.
SELECT DISTINCT coalesce(c.root_seq, o.task_seq)
FROM canard_absurd.outputs o LEFT JOIN canard_absurd.children c ON c.task_seq = o.task_seq
WHERE o.state = 'accepted';
