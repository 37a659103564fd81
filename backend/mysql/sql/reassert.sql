-- Put back the record of :me if nobody owned the mutex since: nobody does, and
-- no other owner was given this fence or a higher one. What is left of its hold, by
-- its own word, makes the one that is written longer, never shorter.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET
  m.acquired_at = NOW_MS,
  m.ttl_at = NOW_MS + :ttl,
  m.transition_at = GREATEST(NOW_MS + :lease, l.hold_until, IF(:hold > 0, NOW_MS + :hold, 0)), -- the same before and after what follows
  m.owner_id = :me,
  m.version = (m.version + 1) % 4294967296,
  l.fence = :fence,
  l.owner_id = :me,
  l.info = :info,
  l.acquired_at = IF(:acquired > 0, :acquired, NOW_MS),
  l.end_at = NOW_MS + :lease,
  l.lease_ms = :lease,
  l.hold_until = GREATEST(l.hold_until, IF(:hold > 0, NOW_MS + :hold, 0)),
  l.released = 0,
  l.promise_id = '',
  l.embargo_id = :me,
  l.embargo_fence = :fence,
  l.embargo_until = 0,
  l.waiters = WITHOUT(:me),
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.mutex AS BINARY) = :mutex AND CAST(l.mutex AS BINARY) = :mutex
  AND (m.transition_at < NOW_MS OR CAST(m.owner_id AS BINARY) IN ('', :me))
  AND (l.owner_id = :me OR NOBODYS)
  AND LIVING(:me)
  AND (l.fence < :fence OR l.fence = :fence AND l.owner_id IN ('', :me))
