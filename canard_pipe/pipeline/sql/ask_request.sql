-- What another process asks of the living run; the run answers in the same row.
INSERT INTO canard_absurd.requests (request_id, kind, arguments, asked_at)
VALUES ($request_id, $kind, $arguments, make_timestamp($now_us));
