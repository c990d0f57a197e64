-- The answer to a request; NULL while there is none.
SELECT answer FROM canard_absurd.requests WHERE request_id = $request_id AND answered_at IS NOT NULL;
