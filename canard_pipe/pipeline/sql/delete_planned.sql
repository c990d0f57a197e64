-- The rows of the new plan replace these, in the same transaction.
DELETE FROM canard_absurd.planned AS p
USING rows(pipeline VARCHAR, kind VARCHAR, key VARCHAR) AS b
WHERE p.pipeline = b.pipeline AND p.kind = b.kind AND p.key = b.key;
