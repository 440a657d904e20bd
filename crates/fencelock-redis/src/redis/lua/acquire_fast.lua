-- The common case of acquire.lua, before anything is defined: the lock is free, nobody waits, and the client asked for no quarantine.
-- It does what acquire.lua does then, with fewer calls. In every other case it writes nothing, and acquire.lua follows.

if ARGV[1] ~= 'poll' and ARGV[10] == 'own' and not KEYS[8]
  and redis.pcall('EXISTS', KEYS[1]) == 0 and redis.pcall('ZCARD', KEYS[3]) == 0 then
  local time, fence = redis.pcall('TIME'), redis.pcall('GET', KEYS[2])
  -- Not a number if TIME is denied, or if the fence has another type or another content.
  local now = not time.err and time[1] * 1000000 + time[2]
  local previous = tonumber(fence or 0)
  -- The tokens end with the server's time if the fence is behind it; see tokens.lua.
  if now and previous and previous >= 0 and previous + 1 <= now and now <= 9007199254740991 then
    local last = string.format('%d', now)
    redis.call('SET', KEYS[2], last, 'PX', '86400000')
    redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
    return {'granted', last, previous == 0 and 1 or math.min(ARGV[9], now - previous)}
  end
end

