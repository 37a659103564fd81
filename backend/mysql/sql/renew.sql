-- The full lease anew, in whatever state of it. The server's clock comes back as
-- the last insert id. A hold that lasts longer is neither shortened nor begun anew:
-- it was written once, when the mutex was taken.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET
  m.acquired_at = NOW_MS,
  m.ttl_at = NOW_MS + :ttl,
  m.transition_at = GREATEST(NOW_MS + :lease, l.hold_until),
  m.version = (m.version + 1) % 4294967296 + 0 * LAST_INSERT_ID(NOW_US),
  l.end_at = NOW_MS + :lease,
  l.lease_ms = :lease
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.owner_id AS BINARY) = :me AND m.transition_at >= NOW_MS
  AND l.owner_id = :me AND l.released = 0 AND l.end_at >= NOW_MS -- in a hold that outlasts the lease
  AND (l.revoked = 0 OR :dying)
