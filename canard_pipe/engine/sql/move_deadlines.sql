-- The owner stood still, or wall time was set: live leases run on by the gap, and what was due stays due.
-- Sleeping tasks keep their wake time: it was meant as wall time.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, deadline = t.deadline + to_microseconds($shift_us)
WHERE t.state = 'running' AND t.deadline > make_timestamp($then_us);

UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, available_at = make_timestamp($now_us)
WHERE t.state IN ('ready', 'suspended') AND t.available_at <= make_timestamp($then_us) AND t.available_at > make_timestamp($now_us);
