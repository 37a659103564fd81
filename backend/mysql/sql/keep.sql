-- The row that JVMs read was deleted or emptied while a hold goes on: it says so again.
-- No owner's lease is running, so no owner's time is changed by it.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET
  m.acquired_at = NOW_MS,
  m.ttl_at = NOW_MS,
  m.transition_at = l.hold_until,
  m.owner_id = '',
  m.version = (m.version + 1) % 4294967296,
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.mutex AS BINARY) = :mutex AND CAST(l.mutex AS BINARY) = :mutex
  AND (m.transition_at < NOW_MS OR CAST(m.owner_id AS BINARY) IN ('', l.owner_id))
  AND m.transition_at < l.hold_until
  AND NOBODYS AND l.hold_until >= NOW_MS
