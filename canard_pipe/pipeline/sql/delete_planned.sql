-- The rows of the new plan replace these, in the same transaction.
DELETE FROM canard_absurd.planned AS p
USING (SELECT unnest(from_json($rows::JSON, '[{"pipeline":"VARCHAR","kind":"VARCHAR","key":"VARCHAR"}]'), recursive := true)) AS b
WHERE p.pipeline = b.pipeline AND p.kind = b.kind AND p.key = b.key;
