-- A place at the end of the queue.
UPDATE simba_lease AS l
SET l.waiters = CONCAT(l.waiters, :line), l.rev = l.rev + 1
WHERE l.mutex = :mutex AND POS(:me) = 0 AND LIVING(:me)
