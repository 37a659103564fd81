-- The same where there is only the table of the JVM library.
SELECT CONCAT(COUNT(*), ':', BIT_XOR(CRC32(CONCAT_WS('/', mutex, owner_id, transition_at < NOW_MS))))
FROM simba_mutex NAMED
