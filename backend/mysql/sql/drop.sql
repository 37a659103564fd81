-- A waiter that did not come while the mutex was promised to it is dead or
-- frozen.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET l.waiters = WITHOUT(:who), l.promise_id = '', l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND m.transition_at < NOW_MS AND l.hold_until < NOW_MS
  AND l.promise_id = :who AND l.promise_version = m.version AND l.promise_until <= NOW_MS
