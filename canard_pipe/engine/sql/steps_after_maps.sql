-- What tasks have saved after a map that has not succeeded: their handlers went on without some of its results.
SELECT k.task_seq, k.ordinal, k.name, k.kind
FROM canard_absurd.checkpoints k
JOIN (SELECT task_seq, min(ordinal) AS ordinal FROM canard_absurd.checkpoints
      WHERE kind = 'mapping' AND archived_at IS NULL GROUP BY task_seq) AS m ON m.task_seq = k.task_seq
WHERE k.task_seq IN (SELECT unnest(from_json($seqs::JSON, '["BIGINT"]')))
  AND k.archived_at IS NULL AND k.ordinal > m.ordinal
ORDER BY k.task_seq, k.ordinal;
