-- Keep a free mutex for its first waiter for a moment. An owner that comes
-- without knowing of it, a JVM, makes it void by the version.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET l.promise_id = :who, l.promise_until = NOW_MS + :life, l.promise_version = m.version, l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND m.transition_at < NOW_MS AND NOBODYS AND l.hold_until < NOW_MS
  AND (l.promise_id = '' OR l.promise_version <> m.version)
  AND POS(:who) = 1
