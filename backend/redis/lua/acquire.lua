-- acquire takes the mutex if it is the asker's turn, else joins the queue or
-- renews the place in it.
--
-- No two own it at once: the string is set only when there is none, no unended
-- record of another owner, no embargo for another, and no hold. It goes by its own PX
-- or by its owner's id, never otherwise.
--
--   ARGV: id, lease ms, ttl ms, queue 0|1, start over 0|1, info, score claimed,
--         seen owner, seen fence, seen birth, seen lease ms, cluster 0|1,
--         hold ms
local id, span, ttl, info = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[6]
local queueing, over, claimed = ARGV[4] == '1', ARGV[5] == '1', tonumber(ARGV[7])
local cluster, hold = ARGV[12] == '1', now + tonumber(ARGV[13])
local seen = {owner = ARGV[8], fence = tonumber(ARGV[9]), birth = ARGV[10], lease = tonumber(ARGV[11])}

if spent(id) then return {'spent'} end
settle()

-- The asker saw an owner of whom nothing is known here: the store was emptied
-- and that owner may still be at work. What was served once is not served again
-- for another waiter that saw the same.
local function impose()
  if seen.owner == '' or holder() or seen.owner == hash.e_owner or seen.owner == hash.owner then return end
  if (seen.birth == '' or seen.birth == hash.birth) and num('fence') >= seen.fence then return end
  local ends = now + seen.lease
  if embargoed() then
    if num('e_fence') >= seen.fence then return end
    ends = math.max(ends, num('e_end'))
  end
  set('e_owner', seen.owner)
  set('e_fence', text(seen.fence))
  set('e_end', text(ends))
  set('e_lease', text(seen.lease))
  set('fence', text(math.max(num('fence'), seen.fence)))
  unset('promise')
  unset('promise_end')
  tell('embargo', seen.owner)
end
impose()
if over then leave(id) end

local next_fence = math.max(num('fence') + 1, seen.fence + 1, us)
if holder() == id then
  return keep(id, span, ttl, info, next_fence, not revoked(id), hold)
end

local me, joined = queue[rank(id)], false
if queueing then
  if not me then
    me = {id = id, score = not over and claimed or us / 1000000}
    queue[#queue + 1], joined = me, true
  end
  known[id] = me
  me.info, me.due, me.doubt, me.push = info, now, 0, false
  sort()
end

-- stay writes the asker's place and gives up the rest if that is refused.
local function stay()
  local look, heard = 0, nil
  if queueing then
    heard = listeners(id)
    local at = rank(id)
    me.push = (heard or 0) > 0
    -- The first three look every second, so that each dead one among those in
    -- front costs no more than its promise.
    look = (me.push and at > 3) and math.min(at, 20) * 1000 or 1000
    me.due = now + look
    store(me)
    if joined then tell('waiting', id) end
  end
  if next(changes) or #unqueued > 0 then flush(false) end
  if queueing then
    local added = redis.pcall('ZADD', QUEUE, string.format('%.6f', me.score), id)
    if type(added) ~= 'table' then added = redis.pcall('PEXPIRE', QUEUE, text(HOUR)) end
    if type(added) == 'table' then
      redis.pcall('ZREM', QUEUE, id)
      redis.pcall('HDEL', LEASE, 'w:' .. id)
      return nil, added
    end
  end
  publish()
  return {look = look, listeners = heard}
end

if holder() then
  local more, refused = stay()
  return refused or answer('held', id, of_owner(more))
end
if embargoed() and hash.e_owner ~= id then
  local more, refused = stay()
  return refused or answer('held', id, of_embargo(more))
end
if cooling() then
  -- A string that was deleted by hand keeps JVM contenders out again. If that is
  -- refused, the hash still keeps ours out.
  if not owner then redis.pcall('SET', OWNER, hash.owner, 'NX', 'PX', text(num('hold') - now)) end
  local more, refused = stay()
  return refused or answer('cooldown', id, of_hold(more))
end
local first = turn(id, hash.owner or id, cluster)
if first ~= id then
  local more, refused = stay()
  if refused then return refused end
  more.remaining = math.min(num('promise_end') - now, PROMISE) -- then look again
  return answer('promised', id, more)
end

if joined then table.remove(queue, rank(id)) end -- it was never written
return take(id, span, ttl, info, next_fence, now, hold)
