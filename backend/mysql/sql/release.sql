-- The owner gives the mutex back, and it is promised to the first waiter. The
-- row of a JVM's table alone is enough.
UPDATE simba_mutex AS m LEFT JOIN simba_lease AS l ON l.mutex = :mutex
SET
  m.acquired_at = 0,
  m.ttl_at = 0,
  m.transition_at = IF(l.hold_until > NOW_MS, l.hold_until, 0),
  m.owner_id = '',
  l.released = IF(l.owner_id = :me, 1, l.released),
  l.end_at = IF(l.owner_id = :me, LEAST(l.end_at, NOW_MS), l.end_at),
  l.promise_id = IF(l.hold_until > NOW_MS, '', SUBSTRING_INDEX(l.waiters, TAB, 1)),
  l.promise_until = NOW_MS + IF(SUBSTRING_INDEX(SUBSTRING_INDEX(l.waiters, TAB, 2), TAB, -1) = 'p', :poll, :promise),
  l.promise_version = m.version,
  l.spent = IF(:tombstone, RIGHT(CONCAT(l.spent, :me, LF), 100000), l.spent),
  l.spent_until = IF(:tombstone, NOW_MS + :tombstone_life, l.spent_until),
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND CAST(m.owner_id AS BINARY) = :me
