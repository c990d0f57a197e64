INSERT INTO canard_absurd.waits
SELECT b.seq, b.kind, b.key
FROM rows(seq BIGINT, kind VARCHAR, key VARCHAR) AS b;
