-- What a later retry leaves open stays as an earlier one has set it.
INSERT INTO canard_absurd.overrides
SELECT b.seq,
       coalesce(b.memory_bytes, (SELECT max(o.memory_bytes) FROM canard_absurd.overrides o WHERE o.task_seq = b.seq)),
       coalesce(b.time_seconds, (SELECT max(o.time_seconds) FROM canard_absurd.overrides o WHERE o.task_seq = b.seq)),
       make_timestamp($now_us)
FROM rows(seq BIGINT, memory_bytes BIGINT, time_seconds DOUBLE) AS b;

DELETE FROM canard_absurd.overrides AS o
USING rows(seq BIGINT) AS b
WHERE o.task_seq = b.seq
  AND EXISTS (SELECT 1 FROM canard_absurd.overrides later WHERE later.task_seq = o.task_seq AND later.made_at > o.made_at);
