-- L5: finished tasks that nobody needs any more, the oldest first. Never one that the plan or a published file names,
-- or that an unfinished task waits for (one that is awake has no row in waits, but its marker), nor an item of a
-- task that has not completed. The newest $keep of each queue stay whatever their age.
SELECT seq, version
FROM (
    SELECT seq, id, version, updated_at, row_number() OVER (PARTITION BY queue ORDER BY updated_at DESC, seq DESC) AS newest
    FROM canard_absurd.tasks
    WHERE state IN ('completed', 'failed', 'cancelled') AND ($queue::VARCHAR IS NULL OR queue = $queue)
) AS t
WHERE newest > $keep
  AND updated_at <= make_timestamp($before_us)
  AND NOT EXISTS (SELECT 1 FROM canard_absurd.planned p WHERE p.task_id = t.id)
  AND NOT EXISTS (SELECT 1 FROM canard_absurd.outputs o WHERE o.task_seq = t.seq)
  AND NOT EXISTS (SELECT 1 FROM canard_absurd.jobs j WHERE j.task_seq = t.seq AND (j.live OR j.to_cancel))
  AND NOT EXISTS (SELECT 1 FROM canard_absurd.waits w WHERE w.kind = 'task' AND w.key = t.id)
  AND NOT EXISTS (
      SELECT 1 FROM canard_absurd.children i JOIN canard_absurd.tasks r ON r.seq = i.root_seq
      WHERE i.task_seq = t.seq AND r.state <> 'completed')
  AND NOT EXISTS (
      SELECT 1
      FROM (SELECT unnest(from_json(c.value::JSON -> '$.tasks', '["VARCHAR"]')) AS id
            FROM canard_absurd.checkpoints c JOIN canard_absurd.tasks o ON o.seq = c.task_seq
            WHERE c.kind = 'waiting' AND c.archived_at IS NULL
              AND o.state NOT IN ('completed', 'failed', 'cancelled')) AS m
      WHERE m.id = t.id)
ORDER BY updated_at, seq
LIMIT $most;
