-- One text in the place of another, if :me owns the mutex. Texts are compared byte by
-- byte, since no collation of a column counts spaces at the end.
UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET l.checkpoint = IF(:to = '', NULL, :to)
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.owner_id AS BINARY) = :me AND m.transition_at >= NOW_MS
  AND CAST(l.owner_id AS BINARY) = :me AND l.released = 0 AND l.end_at >= NOW_MS
  AND CAST(COALESCE(l.checkpoint, '') AS BINARY) = :from
