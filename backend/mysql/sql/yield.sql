-- Give up the place in the queue, to begin again at its end.
UPDATE simba_lease AS l
SET l.waiters = WITHOUT(:me), l.promise_id = IF(l.promise_id = :me, '', l.promise_id), l.rev = l.rev + 1
WHERE l.mutex = :mutex AND (POS(:me) > 0 OR l.promise_id = :me)
