-- Gives up the lock, or a place in line for it.
--
-- ARGV  1 holder id      2 proposed fence, us      3 lease of a hand-off, ms
-- Reply {"released"} | {"absent"} | {"taken", value, type}

local value, kind = occupant()
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  advance(nil, ARGV[2], ARGV[3])
  return {'released'}
end
if redis.call('ZREM', KEYS[3], ARGV[1]) == 1 then redis.call('HDEL', KEYS[4], ARGV[1]) end
if value then return {'taken', value, kind or ''} end
advance(nil, ARGV[2], ARGV[3])
return {'absent'}
