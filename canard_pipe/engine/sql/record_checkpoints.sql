-- A checkpoint that joins a transition which has fenced the task already.
INSERT INTO canard_absurd.checkpoints
SELECT b.seq, b.ordinal, b.name, b.kind, b.value, b.attempt, make_timestamp($now_us), NULL, b.place, NULL
FROM rows(seq BIGINT, ordinal INTEGER, name VARCHAR, kind VARCHAR, value VARCHAR, attempt INTEGER, place INTEGER) AS b;
