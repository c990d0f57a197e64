-- Take an acceptance back that could not be put in its place: the published row before it returns, or none.
UPDATE canard_absurd.outputs AS o
SET target = b.target, kind = b.kind, source = b.source, staging = b.staging, accept_id = b.before,
    size = b.size, checksum = b.checksum, task_seq = b.task_seq, attempt = b.attempt, state = 'published',
    accepted_at = make_timestamp(b.accepted_us), published_at = make_timestamp(b.published_us)
FROM rows(target_key VARCHAR, accept_id VARCHAR, before VARCHAR, target VARCHAR, kind VARCHAR, source VARCHAR, staging VARCHAR, size BIGINT, checksum VARCHAR, task_seq BIGINT, attempt INTEGER, accepted_us BIGINT, published_us BIGINT) AS b
WHERE o.target_key = b.target_key AND o.accept_id = b.accept_id AND o.state = 'accepted' AND b.before IS NOT NULL;

DELETE FROM canard_absurd.outputs AS o
USING rows(target_key VARCHAR, accept_id VARCHAR, before VARCHAR) AS b
WHERE o.target_key = b.target_key AND o.accept_id = b.accept_id AND o.state = 'accepted' AND b.before IS NULL;
