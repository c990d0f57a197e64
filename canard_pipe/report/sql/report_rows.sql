-- Rows of the plan, filtered, sorted and cut; the last column is how many there are before the cut. states and keys
-- NULL: all. needy: those that have not ended well, are at work, or have failed before. sort: sheet, state (those that
-- need somebody first), sample, failures, recent.
WITH chosen AS (
    SELECT *, list_position(
        ['failed', 'blocked', 'cancelled', 'changed', 'running', 'queued', 'waiting', 'skipped', 'done', 'retired'],
        state) AS urgency,
        CASE kind WHEN 'once' THEN 0 WHEN 'sample' THEN 1 ELSE 2 END AS stage
    FROM canard_absurd.samples
    WHERE pipeline = $pipeline
      AND ($states::VARCHAR IS NULL OR state IN (SELECT unnest(from_json($states::JSON, '["VARCHAR"]'))))
      AND ($keys::VARCHAR IS NULL OR sample IN (SELECT unnest(from_json($keys::JSON, '["VARCHAR"]'))))
      AND (NOT $needy OR failures > 0
           OR state IN ('failed', 'blocked', 'cancelled', 'changed', 'running', 'queued'))
), numbered AS (
    SELECT *, count(*) OVER () AS matching, row_number() OVER (ORDER BY
        CASE WHEN $sort = 'state' THEN coalesce(urgency, 0) END,
        CASE WHEN $sort = 'sample' THEN sample END,
        CASE WHEN $sort = 'failures' THEN coalesce(failures, 0) END DESC,
        CASE WHEN $sort = 'recent' THEN updated_at END DESC NULLS LAST,
        stage, position, function) AS number
    FROM chosen
)
SELECT kind, function, sample, state, attempt, failures, max_failures, error, skipped_because, blocked_by, folder, generation,
       task_id, task_seq, line, epoch_us(available_at), epoch_us(updated_at), changed_because, matching
FROM numbered
ORDER BY CASE WHEN $reverse THEN -number ELSE number END
LIMIT $most OFFSET $skip;
