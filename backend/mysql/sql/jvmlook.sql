-- A mutex where there is only the table of the JVM library. The aggregates make
-- one row of none.
SELECT NOW_US,
  COALESCE(MAX(CAST(mutex AS BINARY)), ''), COALESCE(MAX(acquired_at), 0), COALESCE(MAX(ttl_at), 0),
  COALESCE(MAX(transition_at), 0), COALESCE(MAX(CAST(owner_id AS BINARY)), '')
FROM simba_mutex WHERE mutex = :mutex
