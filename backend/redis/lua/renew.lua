-- renew sets the full lease anew for the owner, and puts a record back that had
-- vanished (reassert) unless there is a trace of somebody who owned it since.
--
--   ARGV: id, lease ms, ttl ms, info, fence, reassert 0|1, dying 0|1, rest of the hold ms
local id, span, ttl, info = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local fence, reassert, dying, hold = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7] == '1', now + tonumber(ARGV[8])

local now_owner = holder()
if now_owner == id then
  return keep(id, span, ttl, info, fence, not revoked(id) or dying, hold)
end
if now_owner then return answer('held', id, of_owner()) end
if not reassert or spent(id) then return answer('gone', id) end

local last = num('fence')
if last > fence and embargoed() then return answer('held', id, of_embargo()) end
if last > fence or (last == fence and hash.owner and hash.owner ~= id) then
  return answer('gone', id)
end

local acquired = now
if hash.owner == id then acquired, hold = num('acquired'), num('hold') end
set('e_owner', id) -- lifted, and served
set('e_fence', text(fence))
set('e_end', text(now))
set('e_lease', text(span))
return take(id, span, ttl, info, fence, acquired, hold)
