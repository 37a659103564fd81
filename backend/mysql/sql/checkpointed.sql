-- The text, whether :me owns the mutex, and whether the row that JVMs read says so too.
-- The aggregates make one row of none.
SELECT
  COALESCE(MAX(CAST(l.checkpoint AS BINARY)), ''),
  COALESCE(MAX(CAST(l.owner_id AS BINARY) = :me AND l.released = 0 AND l.end_at >= NOW_MS
    AND COALESCE(CAST(m.owner_id AS BINARY) IN ('', :me) OR m.transition_at < NOW_MS, 1)), 0),
  COALESCE(MAX(CAST(m.owner_id AS BINARY) = :me AND m.transition_at >= NOW_MS), 0)
FROM simba_lease AS l LEFT JOIN simba_mutex AS m ON m.mutex = :mutex
WHERE l.mutex = :mutex
