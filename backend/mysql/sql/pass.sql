-- The first waiter has been silent for as long as a promise lasts: the mutex is
-- not promised to it, and its place ends.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET l.waiters = WITHOUT(:who), l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND m.transition_at < NOW_MS AND NOBODYS AND l.hold_until < NOW_MS
  AND (l.promise_id = '' OR l.promise_version <> m.version)
  AND POS(:who) = 1
  AND IS_FREE_LOCK(:lock) = 1
