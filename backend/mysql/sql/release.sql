-- The owner gives the mutex back, and it is promised to the first waiter. The
-- row of a JVM's table alone is enough. During a hold nobody is named, but the time
-- stands, so neither kind of contender gets in; and whoever waits comes at its end.
-- :rest is what the owner knows of its hold, for a row of simba_lease that was lost. With
-- :unused nothing ran, and there is no hold; it comes to the same in whatever order the
-- columns are set.
UPDATE simba_mutex AS m LEFT JOIN simba_lease AS l ON l.mutex = :mutex
SET
  m.acquired_at = 0,
  m.ttl_at = 0,
  m.transition_at = GREATEST(
    IF(l.hold_until >= NOW_MS AND NOT :unused, l.hold_until, 0),
    IF(:rest > 0 AND COALESCE(l.owner_id, '') <> :me, NOW_MS + :rest, 0)),
  m.owner_id = '',
  l.hold_until = IF(:unused AND l.owner_id = :me, 0, l.hold_until),
  l.released = IF(l.owner_id = :me, 1, l.released),
  l.end_at = IF(l.owner_id = :me, LEAST(l.end_at, NOW_MS), l.end_at),
  l.promise_id = IF(l.hold_until >= NOW_MS AND NOT :unused OR :rest > 0 AND l.owner_id <> :me, '', SUBSTRING_INDEX(l.waiters, TAB, 1)),
  l.promise_until = NOW_MS + IF(SUBSTRING_INDEX(SUBSTRING_INDEX(l.waiters, TAB, 2), TAB, -1) = 'p', :poll, :promise),
  l.promise_version = m.version,
  l.spent = IF(:tombstone, RIGHT(CONCAT(l.spent, :me, LF), 100000), l.spent),
  l.spent_until = IF(:tombstone, NOW_MS + :tombstone_life, l.spent_until),
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND CAST(m.owner_id AS BINARY) = :me
