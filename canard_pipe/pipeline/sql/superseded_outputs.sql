-- Published files of earlier generations of rows of the plan, and of items mapped by these, whose present task is complete:
-- it has not made them again.
SELECT o.target_key, o.target, o.kind, o.source, o.staging, o.accept_id, o.size, o.checksum, o.task_seq, o.attempt, o.state,
       epoch_us(o.accepted_at), epoch_us(o.published_at), t.id
FROM canard_absurd.outputs o
JOIN canard_absurd.tasks t ON t.seq = o.task_seq
LEFT JOIN canard_absurd.children c ON c.task_seq = o.task_seq
JOIN canard_absurd.tasks root ON root.seq = coalesce(c.root_seq, o.task_seq)
JOIN canard_absurd.planned p
  ON p.generation > 1 AND regexp_replace(p.task_id, '/[0-9]+$', '') = regexp_replace(root.id, '/[0-9]+$', '')
JOIN canard_absurd.tasks present ON present.id = p.task_id
WHERE o.state = 'published' AND present.state = 'completed' AND present.seq <> root.seq
ORDER BY o.target_key;
