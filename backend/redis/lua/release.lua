-- release ends all that a contender has, ownership or place in the queue, and
-- wakes the next. It goes by the whole id, so it may come late and again.
--
-- A hold outlives the ownership, unless nothing can have run under it. The string then
-- stays to keep JVM contenders out, so nobody is woken: those who wait were told when
-- to look again, or find out by the string's PX.
--
--   ARGV: id, tombstone ms (0: none), cluster 0|1, rest of the hold ms as its owner
--         remembers it, unused 0|1
local id, tomb, cluster = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local rest, unused = tonumber(ARGV[4]), ARGV[5] == '1'

local had = owner == id
-- Of an owner whose record was lost, only it knows that it had a hold.
if had and hash.owner ~= id and rest > 0 then record(id, '', num('fence'), now, now + rest) end
local hold = hash.owner == id and not unused and num('hold') or 0

-- The first write is one that a full server accepts; then it accepts the others.
if had and hold > now then
  redis.call('PEXPIREAT', OWNER, text(hold))
  left = hold - now
elseif had then
  redis.call('DEL', OWNER)
  owner = false
else
  redis.call('ZREM', QUEUE, id)
  if hold > now and not owner then redis.pcall('SET', OWNER, id, 'NX', 'PX', text(hold - now)) end
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
  if hold <= now then unset('hold') end
  unset('revoked')
end
if had or recent then tell('released', id) end
if hash.e_owner == id and embargoed() then
  set('e_end', text(now))
  tell('released', id)
end
leave(id)
settle()
if not holder() and not embargoed() and not cooling() then turn(nil, id, cluster) end
if next(changes) or #unqueued > 0 then flush(recent) end
publish()
return {'left'}
