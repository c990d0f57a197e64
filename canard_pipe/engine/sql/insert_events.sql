-- L1: the first emission stands; the caller has looked in this transaction, and of two at once one fails at commit.
INSERT INTO canard_absurd.events
SELECT b.name, b.value, make_timestamp($now_us)
FROM rows(name VARCHAR, value VARCHAR) AS b;
