-- L1: the first emission stands; the caller has looked in this transaction, and of two at once one fails at commit.
INSERT INTO canard_absurd.events
SELECT name, value, make_timestamp($now_us)
FROM (SELECT unnest(from_json($rows::JSON, '[{"name":"VARCHAR","value":"VARCHAR"}]'), recursive := true));
