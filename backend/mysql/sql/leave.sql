-- All of :me but an ownership ends: its place, a promise, what others keep the
-- mutex free for. Either row may be missing.
UPDATE (SELECT 1) AS one
LEFT JOIN simba_mutex AS m ON m.mutex = :mutex
LEFT JOIN simba_lease AS l ON l.mutex = :mutex
SET
  m.transition_at = IF(CAST(m.owner_id AS BINARY) = '' AND l.embargo_id = :me,
                       IF(l.hold_until >= NOW_MS, l.hold_until, 0), m.transition_at),
  l.embargo_until = IF(l.embargo_id = :me, 0, l.embargo_until),
  l.promise_id = IF(l.promise_id = :me, '', l.promise_id),
  l.waiters = WITHOUT(:me),
  l.hold_until = IF(:unused AND l.owner_id = :me, 0, l.hold_until),
  l.released = IF(l.owner_id = :me, 1, l.released),
  l.end_at = IF(l.owner_id = :me, LEAST(l.end_at, NOW_MS), l.end_at),
  l.spent = IF(:tombstone, RIGHT(CONCAT(l.spent, :me, LF), 100000), l.spent),
  l.spent_until = IF(:tombstone, NOW_MS + :tombstone_life, l.spent_until),
  l.rev = l.rev + 1
