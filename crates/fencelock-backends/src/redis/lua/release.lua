-- Gives up the lock, or a place in line for it.
--
-- ARGV  1 holder id      2 client's time, us      3 lease of a hand-off, ms      4 run id      5 quorum
-- Reply {"released"} | {"absent"} | {"taken", value, type}
--
-- A server that may not grant hands nothing over either: its line may be from before it forgot.

local value, kind = occupant()
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  if not refusal(ARGV[4], ARGV[5]) then advance(nil, ARGV[2], ARGV[3], ARGV[4]) end
  return {'released'}
end
if redis.call('ZREM', KEYS[3], ARGV[1]) == 1 then redis.call('HDEL', KEYS[4], ARGV[1]) end
if value then return {'taken', value, kind or ''} end
if not refusal(ARGV[4], ARGV[5]) then advance(nil, ARGV[2], ARGV[3], ARGV[4]) end
return {'absent'}
