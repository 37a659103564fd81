-- All that is to be known of a mutex, as seen by :me. A plain consistent read:
-- it waits for no row lock and leaves none. There is always one row.
SELECT
  NOW_US,
  m.mutex IS NOT NULL, COALESCE(CAST(m.mutex AS BINARY), ''),
  m.acquired_at, m.ttl_at, m.transition_at, CAST(m.owner_id AS BINARY), m.version,
  l.mutex IS NOT NULL, COALESCE(CAST(l.mutex AS BINARY), ''), l.birth, l.rev, l.fence, l.owner_id, l.info, l.acquired_at, l.end_at, l.lease_ms, l.hold_until,
  l.released, l.revoked,
  l.promise_id, l.promise_until, l.promise_version,
  l.embargo_id, l.embargo_fence, l.embargo_until, l.embargo_ms,
  RIGHT(l.waiters, 1) IN ('', LF),
  SUBSTRING_INDEX(l.waiters, LF, 1),
  IF(POS(:me) = 0, 0, 1 + LENGTH(BEFORE(:me)) - LENGTH(REPLACE(BEFORE(:me), LF, ''))),
  LOCATE(CONCAT(LF, :me, LF), CONCAT(LF, l.spent)) > 0,
  CASE :queue
    WHEN 'all' THEN l.waiters
    -- The nearest ones in front: whoever waits for the doorbell of one of them.
    WHEN 'front' THEN SUBSTRING_INDEX(BEFORE(:me), LF, -17)
    ELSE ''
  END
FROM (SELECT 1) AS one
LEFT JOIN simba_mutex AS m ON m.mutex = :mutex
LEFT JOIN simba_lease AS l ON l.mutex = :mutex
