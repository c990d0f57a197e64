-- What the tasks of the plan returned: functions that come after them are given it, also in later runs.
SELECT t.result
FROM canard_absurd.planned p JOIN canard_absurd.tasks t ON t.id = p.task_id
WHERE NOT p.retired AND t.result IS NOT NULL AND contains(t.result, 'attempt-')
  AND ($root::BIGINT IS NULL OR t.seq = $root::BIGINT OR p.kind = 'once');
