-- Why each row of a pipeline that has failed did: the facts of its last failed attempt, an item's before its own.
SELECT t.seq, a.cause, a.error
FROM canard_absurd.planned p
JOIN canard_absurd.tasks t ON t.id = p.task_id AND t.state = 'failed'
JOIN (SELECT coalesce(c.root_seq, b.task_seq) AS seq, b.cause, b.error, b.ended_at,
             coalesce(b.cause ->> '$.kind' = 'items', false) AS of_items
      FROM canard_absurd.attempts b LEFT JOIN canard_absurd.children c ON c.task_seq = b.task_seq
      WHERE b.outcome = 'failed') AS a ON a.seq = t.seq
WHERE p.pipeline = $pipeline
QUALIFY row_number() OVER (PARTITION BY t.seq ORDER BY a.of_items, a.ended_at DESC) = 1
ORDER BY t.seq;
