SELECT request_id, kind, arguments FROM canard_absurd.requests WHERE answered_at IS NULL ORDER BY asked_at;
