-- What a task has published.
SELECT o.target_key, o.target, o.kind, o.source, o.staging, o.accept_id, o.size, o.checksum, o.task_seq, o.attempt, o.state,
       epoch_us(o.accepted_at), epoch_us(o.published_at), t.id
FROM canard_absurd.outputs o LEFT JOIN canard_absurd.tasks t ON t.seq = o.task_seq
WHERE o.state = 'published' AND o.task_seq = $task_seq
ORDER BY o.target_key;
