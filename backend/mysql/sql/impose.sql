-- Keep the mutex from everybody, JVMs too, for one lease of an owner of which
-- nothing is known here any more. :rev is of the state that was judged.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET
  m.acquired_at = NOW_MS,
  m.ttl_at = NOW_MS,
  m.transition_at = GREATEST(NOW_MS + :lease, l.embargo_until, l.hold_until), -- the same before and after embargo_until is set
  m.owner_id = '',
  m.version = (m.version + 1) % 4294967296,
  l.embargo_id = :seen_owner,
  l.embargo_fence = :seen_fence,
  l.embargo_until = GREATEST(NOW_MS + :lease, l.embargo_until),
  l.embargo_ms = :lease,
  l.fence = GREATEST(l.fence, :seen_fence),
  l.promise_id = '',
  l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND (m.transition_at < NOW_MS OR CAST(m.owner_id AS BINARY) IN ('', l.owner_id)) -- the last one's hold goes on
  AND NOBODYS
  AND l.rev = :rev
