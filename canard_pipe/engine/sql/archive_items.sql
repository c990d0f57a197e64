-- The maps of these items were archived: they belong to no map until one asks for them again.
UPDATE canard_absurd.children AS c
SET archived_at = make_timestamp($now_us)
FROM rows(seq BIGINT) AS b
WHERE c.task_seq = b.seq AND c.archived_at IS NULL;
