-- Moment 5 of publishing: what was accepted under this accept id is in its place.
UPDATE canard_absurd.outputs AS o
SET state = 'published', published_at = make_timestamp($now_us)
FROM rows(target_key VARCHAR, accept_id VARCHAR) AS b
WHERE o.target_key = b.target_key AND o.accept_id = b.accept_id AND o.state = 'accepted';
