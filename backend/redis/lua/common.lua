-- Every script begins with this text. It reads all there is of one mutex, holds
-- the rules of the queue, and collects what is to be written; ownership.lua follows.
--
--   KEYS[1]  simba:{NAME}            the owner's id; PX is the rest of its lease, or of
--                                    its hold if that ends later
--   KEYS[2]  simba:{NAME}:contender  sorted set of waiters by time of arrival
--   KEYS[3]  simba:{NAME}:lease      hash of what only this program knows
--
-- Fields of the hash (times are the server's, in ms unless said otherwise):
--   birth     when the hash was made, in us: another one means it was lost
--   exp       when the hash goes. Whoever may read only computes the server's
--             present from it and PTTL
--   fence     highest given; owner, info, acquired, end, lease, ttl: of the last
--             owner of our kind; released, revoked: "1" or absent
--   hold      until then nobody but that owner may own the mutex; absent: no such wish
--   promise, promise_end: whom the free mutex is kept for, until when
--   e_owner, e_fence, e_end, e_lease: embargo for an owner whose record was lost
--   w:ID      a waiter: "score mode due doubt info"; mode is push (the server had
--             its subscription) or poll, due is when it looks again by itself,
--             doubt since when it had no subscription though it should; 0: none
--   t:ID      the id is spent until then
local OWNER, QUEUE, LEASE = KEYS[1], KEYS[2], KEYS[3]

local HOUR = 3600000 -- the hash outlives the lease by this
local PROMISE = 1000 -- one round trip on a loaded host
local DOUBT = 250    -- one reconnect
local LATE = 1000    -- a look that is later than this was missed
local GRAIN = 2      -- a string is there throughout the ms of its end, and TIME is read later
local DEAD = 30000   -- a waiter that late is forgotten

local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local now = math.ceil(us / 1000)

-- Numbers beyond 2^31 must not be left to Lua's own way of writing them.
local function text(n) return string.format('%.0f', n) end

-- All is read before anything is written: a value of a foreign type ends the
-- script here, and nothing has changed.
local owner = redis.call('GET', OWNER)
local left = owner and redis.call('PTTL', OWNER) or 0 -- -1: it never ends
local hash = {}
do
  local flat = redis.call('HGETALL', LEASE)
  for i = 1, #flat, 2 do hash[flat[i]] = flat[i + 1] end
end
local function num(field) return tonumber(hash[field]) or 0 end

local changes, unqueued, news = {}, {}, {}
local function set(field, value)
  if hash[field] ~= value then hash[field], changes[field] = value, value end
end
local function unset(field)
  if hash[field] ~= nil then hash[field], changes[field] = nil, false end
end
local function tell(kind, id) news[#news + 1] = kind .. '@@' .. id end

-- The owner of the record, if it neither gave back nor ran out. It still owns
-- the mutex when its string was deleted by other hands.
local function recorded()
  if hash.owner and not hash.released and num('end') > now then return hash.owner end
end

-- cooling: the last owner gave back or ran out, and its hold goes on. The string is
-- then still there for the sake of JVM contenders, with that owner's id, by which
-- nobody takes it for his own: a released id is spent, one that ran out has to ask.
-- A string of somebody else's, or without an end, is an owner.
local function cooling()
  if not hash.hold or not hash.owner or not (hash.released or num('end') <= now) then return false end
  if owner then return owner == hash.owner and left >= 0 and num('hold') + GRAIN >= now end
  return num('hold') > now
end
local function holder()
  if cooling() then return nil end
  return owner or recorded()
end

-- What is left of the lease. The string may stay longer than that, for the hold.
local function remaining()
  if not owner then return num('end') - now end
  if left >= 0 and owner == recorded() and num('hold') > num('end') then return math.min(left, num('end') - now) end
  return left
end

local function revoked(id) return hash.revoked and hash.owner == id end
local function embargoed() return hash.e_owner and num('e_end') > now end
local function spent(id)
  return num('t:' .. id) > now or (hash.owner == id and hash.released ~= nil)
end

-- The queue is the union of the sorted set and the hash: contenders of the JVM
-- library take the lowest member out of the set, alive or not, and never return
-- it. A member without a record in the hash is one of theirs (due is nil).
local queue, known = {}, {}
do
  for field, value in pairs(hash) do
    if string.sub(field, 1, 2) == 'w:' then
      local score, mode, due, doubt, info = string.match(value, '^(%S+) (%S+) (%d+) (%d+) (.*)$')
      score = tonumber(score)
      if score then
        local w = {
          id = string.sub(field, 3), score = score, push = mode == 'push',
          due = tonumber(due), doubt = tonumber(doubt), info = info,
        }
        known[w.id] = w
        queue[#queue + 1] = w
      end
    end
  end
  local set = redis.call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES')
  for i = 1, #set, 2 do
    if not known[set[i]] then
      queue[#queue + 1] = {id = set[i], score = tonumber(set[i + 1])}
    end
  end
end
local function sort()
  table.sort(queue, function(a, b)
    if a.score ~= b.score then return a.score < b.score end
    return a.id < b.id
  end)
end
sort()

local function rank(id)
  for i, w in ipairs(queue) do
    if w.id == id then return i end
  end
  return 0
end

local function store(w)
  set('w:' .. w.id, string.format('%.6f %s %.0f %.0f %s', w.score, w.push and 'push' or 'poll', w.due, w.doubt, w.info))
end

-- leave ends a place in the queue and a promise.
local function leave(id)
  local at = rank(id)
  if at > 0 then
    table.remove(queue, at)
    unqueued[#unqueued + 1] = id
    tell('left', id)
  end
  known[id] = nil
  unset('w:' .. id)
  if hash.promise == id then
    unset('promise')
    unset('promise_end')
  end
end

-- An owner does not wait: JVM contenders that get on without having been popped
-- leave their place behind, and would be woken by their own release.
if owner and not cooling() then leave(owner) end

for i = #queue, 1, -1 do
  local w = queue[i]
  if w.due and now - w.due > DEAD then leave(w.id) end
end

-- settle: any owner ends a promise; one that lapsed drops its waiter, which is
-- dead or frozen. (If it lives it may claim its place again.)
local function settle()
  if not hash.promise then return end
  if holder() then
    unset('promise')
    unset('promise_end')
  elseif num('promise_end') <= now then
    leave(hash.promise)
  end
end

-- How many listen for this waiter: nil if that may not be asked. (What PUBLISH
-- answers counts watchers as well.)
local function listeners(id)
  local n = redis.pcall('PUBSUB', 'NUMSUB', OWNER .. ':' .. id)
  if n.err then return nil end
  return n[2]
end

-- How long the free mutex is to be kept for this waiter; 0: it is known dead.
local function patience(w, cluster)
  local n = listeners(w.id)
  if not w.due then
    -- In a cluster a JVM contender may listen at another node.
    if n == 0 then return cluster and DOUBT or 0 end
    return PROMISE
  end
  local late = now > w.due + LATE
  if not w.push and (n or 0) == 0 then
    return math.max(0, w.due + PROMISE - now) -- it cannot be woken, only awaited
  end
  if n ~= 0 then return late and DOUBT or PROMISE end
  -- Its subscription is gone. If somebody killed connections it is back in a
  -- moment, and so are all others: they are doubted together, once.
  if late then return 0 end
  if w.doubt == 0 then
    for _, v in ipairs(queue) do
      if v.due and v.push and v.doubt == 0 and listeners(v.id) == 0 then
        v.doubt = now
        store(v)
      end
    end
  end
  return math.max(0, w.doubt + DOUBT - now)
end

-- turn says whose turn it is at the free mutex: the asker's (also if nobody
-- waits), or somebody's whom it is promised to from now on and who is woken.
local function turn(asker, releaser, cluster)
  if hash.promise then return hash.promise end
  while queue[1] do
    local w = queue[1]
    if w.id == asker then return asker end
    local keep = patience(w, cluster)
    if keep == 0 then
      leave(w.id)
    else
      if not w.due then leave(w.id) end -- theirs are taken out when woken
      local heard = redis.pcall('PUBLISH', OWNER .. ':' .. w.id, 'released@@' .. releaser)
      if type(heard) == 'table' and w.due then -- refused: it has to find out
        keep = math.max(keep, w.due + PROMISE - now)
      end
      set('promise', w.id)
      set('promise_end', text(now + keep))
      tell('woken', w.id)
      return w.id
    end
  end
  return asker
end

-- Lua passes only so many values at once.
local function each(command, key, list)
  for i = 1, #list, 4000 do
    redis.call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

-- flush writes what was collected, the refusable first. While somebody of our
-- kind owns the mutex, only its own operations move the end of the hash.
local function flush(owning)
  if next(changes) or owning then
    local last = math.max(now, embargoed() and num('e_end') or 0, num('hold'))
    local short = num('exp') < last + HOUR / 2
    if recorded() then last = math.max(last, num('end')) end
    if owning or short then set('exp', text(last + HOUR)) end
    if not hash.birth then set('birth', text(us)) end
  end
  local put, cut = {}, {}
  for field, value in pairs(changes) do
    if value then
      put[#put + 1] = field
      put[#put + 1] = value
    else
      cut[#cut + 1] = field
    end
  end
  each('HSET', LEASE, put)
  if changes.exp then redis.call('PEXPIREAT', LEASE, hash.exp) end
  each('HDEL', LEASE, cut)
  each('ZREM', QUEUE, unqueued)
end

-- Who may not use channels is still served.
local function publish()
  for _, message in ipairs(news) do redis.pcall('PUBLISH', LEASE, message) end
end
