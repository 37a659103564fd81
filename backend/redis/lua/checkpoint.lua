-- checkpoint puts one text in the place of another if the asker owns the mutex. The
-- text has a key of its own, which no release touches and whose end is set anew with
-- every writing. SET is the only write, so a full server refuses all or nothing. A
-- text that is there already is written again: its first writing may be known to this
-- server alone.
--
--   KEYS[4]  simba:{NAME}:checkpoint
--   ARGV: id, from, to, ms for which it is kept
local id, from, to = ARGV[1], ARGV[2], ARGV[3]
if holder() ~= id then return {'other'} end
local is = redis.call('GET', KEYS[4]) or ''
if from == to or (is ~= from and is ~= to) then return {'read', is} end
if to == '' then
  redis.call('DEL', KEYS[4])
else
  redis.call('SET', KEYS[4], to, 'PX', ARGV[4])
end
return {'written', to}
