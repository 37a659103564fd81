-- Take the mutex for :me if nobody owns it and it is the turn of :me.
-- No expression reads a column that the statement sets, its own aside: with two
-- tables the order of assignments is not defined.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET
  m.acquired_at = NOW_MS,
  m.ttl_at = NOW_MS + :ttl,
  -- All that a JVM goes by, so it has to stand for the hold, too. Whose lease has
  -- ended, end_at says.
  m.transition_at = NOW_MS + GREATEST(:lease, :hold),
  m.owner_id = :me,
  m.version = (m.version + 1) % 4294967296,
  l.fence = LAST_INSERT_ID(GREATEST(l.fence + 1, :seen_fence + 1, NOW_US)),
  l.owner_id = :me,
  l.info = :info,
  l.acquired_at = NOW_MS,
  l.end_at = NOW_MS + :lease,
  l.lease_ms = :lease,
  l.hold_until = IF(:hold > 0, NOW_MS + :hold, 0),
  l.released = 0,
  l.revoked = 0,
  l.promise_id = '',
  l.embargo_until = 0,
  l.waiters = WITHOUT(:me),
  l.spent = IF(l.spent_until < NOW_MS, '', l.spent),
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.mutex AS BINARY) = :mutex AND CAST(l.mutex AS BINARY) = :mutex -- not one that a collation takes for it
  AND m.acquired_at >= 0 AND m.ttl_at >= 0 AND m.version >= 0 AND m.owner_id IS NOT NULL -- not another's nonsense
  AND NOBODYS
  -- Also if the row that JVMs read was deleted, or emptied.
  AND l.hold_until < NOW_MS
  -- Free for a JVM, or kept from everybody for the sake of :me.
  AND (m.transition_at >= 0 AND m.transition_at < NOW_MS
    OR CAST(m.owner_id AS BINARY) = '' AND l.embargo_id = :me AND l.embargo_until >= NOW_MS)
  AND (l.embargo_id IN ('', :me) OR l.embargo_until < NOW_MS)
  AND LIVING(:me)
  -- In turn: promised to :me, or promised to nobody and nobody in front.
  AND IF(l.promise_id = '' OR l.promise_version <> m.version,
         l.waiters = '' OR POS(:me) = 1,
         l.promise_id = :me AND l.promise_until > NOW_MS)
  -- An owner that :me saw is known here, or its embargo was served: see impose.sql.
  AND (:seen_owner IN ('', l.owner_id, l.embargo_id) OR l.birth = :seen_birth AND l.fence >= :seen_fence)
  AND l.fence < 9007199254740991
