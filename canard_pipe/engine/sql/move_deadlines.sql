-- The owner stood still, or wall time was set: leases run on by the gap. What had expired stays so, what was due too.
-- Sleeping tasks keep their wake time: it was meant as wall time.
UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, deadline = t.deadline + to_microseconds($shift_us)
WHERE t.state = 'running';

UPDATE canard_absurd.tasks AS t
SET version = t.version + 1, available_at = make_timestamp($now_us)
WHERE t.state IN ('ready', 'suspended') AND t.available_at <= make_timestamp($then_us) AND t.available_at > make_timestamp($now_us);
