-- For each task: how many attempts in a row ended interrupted, with its own code at work, since the last checkpoint or
-- other outcome.
SELECT a.task_seq, count(*)
FROM canard_absurd.attempts a
WHERE a.task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')))
  AND a.outcome = 'interrupted' AND a.cause IS NULL
  AND a.attempt > greatest(
      coalesce((SELECT max(o.attempt) FROM canard_absurd.attempts o WHERE o.task_seq = a.task_seq AND o.outcome <> 'interrupted'), 0),
      coalesce((SELECT max(c.attempt) FROM canard_absurd.checkpoints c WHERE c.task_seq = a.task_seq), 0))
GROUP BY a.task_seq;
