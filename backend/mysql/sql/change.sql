-- One number for all that a watcher is told of: it changes with each change.
SELECT CONCAT_WS('/',
  (SELECT CONCAT(COUNT(*), ':', BIT_XOR(CRC32(CONCAT_WS('/', mutex, owner_id, transition_at < NOW_MS))))
   FROM simba_mutex NAMED),
  (SELECT CONCAT(COUNT(*), ':', BIT_XOR(CRC32(CONCAT_WS('/', mutex, birth, rev, promise_until < NOW_MS, end_at < NOW_MS, hold_until < NOW_MS))))
   FROM simba_lease NAMED))
