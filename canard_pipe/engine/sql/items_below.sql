-- The items of maps (pairs of parent and name), and the items of these.
WITH RECURSIVE below AS (
    SELECT c.task_seq
    FROM canard_absurd.children c
    JOIN (SELECT unnest(from_json($maps::JSON, '[{"seq":"BIGINT","map":"VARCHAR"}]'), recursive := true)) AS m
      ON c.parent_seq = m.seq AND c.map = m.map
    WHERE c.archived_at IS NULL
    UNION
    SELECT c.task_seq
    FROM below b JOIN canard_absurd.children c ON c.parent_seq = b.task_seq AND c.archived_at IS NULL
)
SELECT task_seq FROM below;
