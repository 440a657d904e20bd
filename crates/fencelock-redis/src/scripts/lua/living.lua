-- The number of live waiters; the number of all waiters if TIME is denied.
local function living()
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 0 end
  local time = redis.pcall('TIME')
  if time.err then return waiting end
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting
end

