-- Gives up the lock, or a place in line for it.
--
-- ARGV  1 holder id      2 client's time, us      3 lease of a hand-off, ms      4 run id      5 quorum
-- Reply {"released" | "absent", 1 if there are more dead waiters than one call passes over, else 0} | {"taken", value, type}
--
-- A server that may not grant hands nothing over either: its line may be from before it forgot. Whoever hears of more sends
-- the same again, or leaves the rest to whoever asks next.

local value, kind = occupant()
local answer = 'absent'
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  answer = 'released'
else
  if tolerant('ZREM', KEYS[3], ARGV[1]) == 1 then
    tolerant('HDEL', KEYS[4], ARGV[1])
    tolerant('ZREM', KEYS[5], ARGV[1])
  end
  if value then return {'taken', value, kind or ''} end
end
local more = not refusal(ARGV[4], ARGV[5]) and advance(nil, ARGV[2], ARGV[3], ARGV[4]) == 'more'
return {answer, more and 1 or 0}
