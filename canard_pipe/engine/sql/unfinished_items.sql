-- The items that failed or were cancelled of the maps that these tasks have not got over, and such items of theirs.
WITH RECURSIVE again AS (
    SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')) AS seq
    UNION
    SELECT c.task_seq
    FROM again a
    JOIN canard_absurd.children c ON c.parent_seq = a.seq AND c.archived_at IS NULL
    JOIN canard_absurd.checkpoints k
      ON k.task_seq = a.seq AND k.name = c.map AND k.kind = 'mapping' AND k.archived_at IS NULL
    JOIN canard_absurd.tasks o ON o.seq = c.task_seq AND o.state IN ('failed', 'cancelled')
)
SELECT t.seq, t.version
FROM canard_absurd.tasks t
WHERE t.seq IN (SELECT seq FROM again) AND t.seq NOT IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')));
