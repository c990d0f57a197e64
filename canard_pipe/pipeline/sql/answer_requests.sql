UPDATE canard_absurd.requests AS r
SET answered_at = make_timestamp($now_us), answer = b.answer
FROM rows(request_id VARCHAR, answer VARCHAR) AS b
WHERE r.request_id = b.request_id;
