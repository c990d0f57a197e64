-- Moment 3 of publishing: record staged files as accepted, all those of one call or none of them.
-- A call is refused (nothing of it is written) if one of its targets has a row that is neither absent nor the published
-- one that the caller has judged (replaces), or is asked for by another call of the same gathered transaction.
-- The key is never updated, so the primary key's index is not touched by a re-publication.
INSERT INTO canard_absurd.outputs
    (target_key, target, kind, source, staging, accept_id, size, checksum, task_seq, attempt, state, accepted_at, published_at)
WITH asked AS (
    SELECT * FROM rows(target_key VARCHAR, target VARCHAR, kind VARCHAR, source VARCHAR, staging VARCHAR, accept_id VARCHAR, replaces VARCHAR, call VARCHAR, size BIGINT, checksum VARCHAR, task_seq BIGINT, attempt INTEGER)
),
refused AS (
    SELECT a.call
    FROM asked a JOIN canard_absurd.outputs o ON o.target_key = a.target_key
    WHERE o.accept_id <> a.accept_id AND (o.accept_id IS DISTINCT FROM a.replaces OR o.state <> 'published')
    UNION
    SELECT later.call
    FROM asked later JOIN asked earlier ON earlier.target_key = later.target_key AND earlier.call < later.call
)
SELECT target_key, target, kind, source, staging, accept_id, size, checksum, task_seq, attempt, 'accepted',
       make_timestamp($now_us), NULL
FROM asked
WHERE call NOT IN (SELECT call FROM refused)
ON CONFLICT (target_key) DO UPDATE SET
    target = excluded.target, kind = excluded.kind, source = excluded.source, staging = excluded.staging,
    accept_id = excluded.accept_id, size = excluded.size, checksum = excluded.checksum,
    task_seq = excluded.task_seq, attempt = excluded.attempt, state = excluded.state,
    accepted_at = excluded.accepted_at, published_at = excluded.published_at;
