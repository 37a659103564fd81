-- Every script has this after common.lua: how an ownership is written down, and what
-- is answered about it.

-- record makes id the owner in the hash. Whatever hold the last one had is over, or
-- was its own.
local function record(id, info, fence, acquired, hold)
  set('owner', id)
  set('info', info)
  set('fence', text(fence))
  set('acquired', text(acquired))
  if hold > now then set('hold', text(hold)) else unset('hold') end
  unset('released')
  unset('revoked')
  unset('promise')
  unset('promise_end')
  if embargoed() then set('e_end', text(now)) end
  leave(id)
end

local function extend(span, ttl)
  set('end', text(now + span))
  set('lease', text(span))
  set('ttl', ttl)
end

-- answer is what the client reads, see script.go.
local function answer(state, id, more)
  more = more or {}
  return {
    state, more.owner or '', more.info or '', more.fence or 0, hash.birth or '', more.remaining or 0,
    more.lease or 0, us, rank(id), more.look or 0, revoked(id) and 1 or 0, more.listeners or -1,
    known[id] and string.format('%.6f', known[id].score) or '',
  }
end
local function of_owner(more)
  more = more or {}
  local id = holder()
  more.owner, more.remaining = id, remaining()
  if hash.owner == id and not hash.released then
    more.info, more.fence, more.lease = hash.info, num('fence'), num('lease')
  end
  return more
end
local function of_embargo(more)
  more = more or {}
  more.owner, more.fence = hash.e_owner, num('e_fence')
  more.remaining, more.lease = num('e_end') - now, num('e_lease')
  return more
end

local function of_hold(more)
  more = more or {}
  more.remaining = math.max(num('hold') - now, 1)
  return more
end

-- stands: until when the string keeps JVM contenders out.
local function stands() return math.max(num('end'), num('hold')) end

-- own sets the string, which is known not to be there, or to be what the last hold
-- left. Its end is given again after it, absolutely: to the millisecond the one that
-- the hash says.
local function own(id)
  if owner ~= id then
    redis.call('SET', OWNER, id, owner and 'XX' or 'NX', 'PX', text(stands() - now))
  end
  owner, left = id, stands() - now
end

-- take makes id the owner. SET is the first write: it is the one that a full
-- server refuses. If a later one is refused, for want of rights, all is undone.
local function take(id, span, ttl, info, fence, acquired, hold)
  local before = owner
  record(id, info, fence, acquired, hold)
  extend(span, ttl)
  own(id)
  local done, failed = pcall(function()
    redis.call('PEXPIREAT', OWNER, text(stands()))
    flush(true)
  end)
  if not done then
    if not before then redis.pcall('DEL', OWNER) end
    redis.pcall('HSET', LEASE, 'released', '1')
    redis.pcall('HDEL', LEASE, 'hold')
    return type(failed) == 'table' and failed or redis.error_reply(failed)
  end
  redis.pcall('PUBLISH', OWNER, 'acquired@@' .. id)
  tell('acquired', id)
  publish()
  return answer('mine', id, of_owner())
end

-- keep is the owner asking again: the full lease anew unless it is not to be
-- extended. PEXPIREAT comes first: a full server accepts it, and all that follows
-- a write that was accepted. A hold that is on record stays as it is; one that was
-- lost with the hash is written again as the owner remembers it.
local function keep(id, span, ttl, info, fence, extending, hold)
  if extending then
    if hash.owner ~= id or hash.released then
      record(id, info, math.max(fence, num('fence')), now, hold) -- the hash was lost
    end
    extend(span, ttl)
    own(id) -- somebody may have deleted it
    redis.call('PEXPIREAT', OWNER, text(stands()))
    settle()
    flush(true)
    publish()
  end
  return answer('mine', id, of_owner())
end
