-- Forget published files that are results no longer.
DELETE FROM canard_absurd.outputs AS o
USING rows(target_key VARCHAR, accept_id VARCHAR) AS b
WHERE o.target_key = b.target_key AND o.accept_id = b.accept_id AND o.state = 'published';
