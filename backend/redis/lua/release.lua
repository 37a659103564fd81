-- release ends all that a contender has, ownership or place in the queue, and
-- wakes the next. It goes by the whole id, so it may come late and again.
--
--   ARGV: id, tombstone ms (0: none), cluster 0|1
local id, tomb, cluster = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'

-- The first write is one that a full server accepts; then it accepts the others.
local had = owner == id
if had then
  redis.call('DEL', OWNER)
  owner = false
else
  redis.call('ZREM', QUEUE, id)
end

if tomb > 0 then
  for field in pairs(hash) do
    if string.sub(field, 1, 2) == 't:' and num(field) <= now then unset(field) end
  end
  set('t:' .. id, text(now + tomb))
end
local recent = hash.owner == id and not hash.released
if recent then
  set('released', '1')
  if num('end') > now then set('end', text(now)) end
  unset('revoked')
end
if had or recent then tell('released', id) end
if hash.e_owner == id and embargoed() then
  set('e_end', text(now))
  tell('released', id)
end
leave(id)
settle()
if not holder() and not embargoed() then turn(nil, id, cluster) end
if next(changes) or #unqueued > 0 then flush(recent) end
publish()
return {'left'}
