-- Forget an acceptance whose staged file is gone and whose target is something else: the step makes it again.
DELETE FROM canard_absurd.outputs AS o
USING rows(target_key VARCHAR, accept_id VARCHAR) AS b
WHERE o.target_key = b.target_key AND o.accept_id = b.accept_id AND o.state = 'accepted';
