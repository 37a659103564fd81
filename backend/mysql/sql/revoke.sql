UPDATE simba_mutex AS m STRAIGHT_JOIN simba_lease AS l
SET l.revoked = 1, l.rev = l.rev + 1
WHERE m.mutex = :mutex AND l.mutex = :mutex
  AND CAST(m.owner_id AS BINARY) = :owner AND m.transition_at >= NOW_MS
  AND l.owner_id = :owner AND l.released = 0 AND l.end_at >= NOW_MS
