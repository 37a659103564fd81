-- revoke tells an owner, by its whole id, to stop. Its lease is not touched: if
-- it is dead, exclusion holds until that has run out.
--
--   ARGV: id
local id = ARGV[1]
if holder() ~= id then return {'other'} end
if hash.owner ~= id or hash.released then return {'foreign'} end
set('revoked', '1')
flush(false)
tell('revoked', id)
publish()
return {'revoked'}
