-- Removes at most CAP dead waiters from the queue, except `me`, the caller. Returns their number.
local function purge(me, now_ms)
  local dead = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, CAP)
  for i = #dead, 1, -1 do
    if dead[i] == me then table.remove(dead, i) end
  end
  if #dead == 0 then return 0 end
  redis.call('ZREM', KEYS[5], unpack(dead))
  redis.call('HDEL', KEYS[4], unpack(dead))
  redis.call('ZREM', KEYS[3], unpack(dead))
  return #dead
end

