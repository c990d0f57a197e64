-- S4, S7, S8: what may be claimed now. An expired running task competes with its old available_at.
-- A task that expired for the last time is the sweep's (exhausted_tasks), exactly complementary.
-- Large inputs come with the claim (task_inputs): more may be read here than is claimed.
SELECT seq, version, id, name, attempt, failures, max_failures,
       CASE WHEN strlen(input) <= 4096 THEN input END AS input, state = 'running' AS expired,
       worker, epoch_us(claimed_at)
FROM canard_absurd.tasks
WHERE queue = $queue
  AND ((state = 'ready' AND available_at <= make_timestamp($now_us))
       OR (state = 'running' AND deadline <= make_timestamp($now_us) AND failures + 1 < max_failures))
  AND ($names::VARCHAR IS NULL OR name IN (SELECT unnest(from_json($names::JSON, '["VARCHAR"]'))))
  AND ($ids::VARCHAR IS NULL OR id IN (SELECT unnest(from_json($ids::JSON, '["VARCHAR"]'))))
ORDER BY priority DESC, available_at, created_at, seq
LIMIT $most;
