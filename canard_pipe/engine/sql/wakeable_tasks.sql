-- Level-triggered: suspended tasks whose waits are all fulfilled, or whose time has come.
SELECT t.seq, t.version
FROM canard_absurd.tasks t
WHERE t.state = 'suspended'
  AND (t.available_at <= make_timestamp($now_us)
       OR NOT EXISTS (
           SELECT 1 FROM canard_absurd.waits w
           WHERE w.task_seq = t.seq AND NOT (
               (w.kind = 'task' AND EXISTS (SELECT 1 FROM canard_absurd.tasks o
                                            WHERE o.id = w.key AND o.state IN ('completed', 'failed', 'cancelled')))
               OR (w.kind = 'job' AND NOT EXISTS (SELECT 1 FROM canard_absurd.jobs j WHERE j.token = w.key AND j.live))
               OR (w.kind = 'map' AND NOT EXISTS (
                       SELECT 1 FROM canard_absurd.children c JOIN canard_absurd.tasks o ON o.seq = c.task_seq
                       WHERE c.parent_seq = w.task_seq AND c.map = w.key AND c.archived_at IS NULL
                         AND o.state IN ('ready', 'running', 'suspended')))
               OR (w.kind = 'event' AND EXISTS (SELECT 1 FROM canard_absurd.events e WHERE e.name = w.key)))));
