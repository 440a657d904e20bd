-- What the scripts share: the lock, its fence, and the line of waiters.
--
-- KEYS  1 lock      string: "<holder id> <owner>", or whatever another program put there
--       2 fence     string: the greatest fencing token given, microseconds
--       3 line      zset: holder ids of waiters by ticket
--       4 waiters   hash: holder id -> "<alive until, ms> <ttl, ms> <channel or -> <value>"
--
-- One script runs at a time, and the server's time stands still while it runs.

local FENCE_TTL = 86400000   -- 24 h idle. The fence follows the time, so forgetting it then cannot lower it.
local LINE_TTL = 3600000     -- 1 h. Far beyond the life of a waiter that says nothing.
local CLAMP = 1000000        -- a proposal may lie 1 s off the server's clock
local FENCE_MAX = 9007199254740991

-- The value of the lock, or nil; for a foreign type the value "" and the type.
local function occupant()
  local value = redis.pcall('GET', KEYS[1])
  if type(value) ~= 'table' then return value or nil end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value) end
  return '', redis.call('TYPE', KEYS[1]).ok
end

local function is_holder(value, id)
  return value and string.sub(value, 1, 32) == id and (#value == 32 or string.sub(value, 33, 33) == ' ')
end

-- Microseconds by the server's clock, and true; where TIME is refused, by the client's proposal, and false.
local function clock(proposal)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(proposal), false end
  return time[1] * 1000000 + time[2], true
end

local function next_fence(proposal)
  local fence = tonumber(proposal)
  local now, exact = clock(proposal)
  if exact then fence = math.max(now - CLAMP, math.min(fence, now + CLAMP)) end
  fence = math.max(fence, (tonumber(redis.call('GET', KEYS[2]) or '0') or 0) + 1)
  if fence > FENCE_MAX then error({err = 'ERR fencelock: the fencing token of this key has reached 2^53'}) end
  fence = string.format('%.0f', fence)
  redis.call('SET', KEYS[2], fence, 'PX', FENCE_TTL)
  return fence
end

-- The lock is free: it goes to the first waiter that is alive, under a short lease until that one confirms. Stops
-- before `me`, who is then out of the line, and says so. A waiter whose channel nobody reads has no process any more.
local function advance(me, proposal, claim_ttl)
  -- Asked first, because a script that has begun to write may go on when the memory is full.
  if redis.call('EXISTS', KEYS[3]) == 0 then return false end
  local now = nil
  while true do
    local id = redis.call('ZPOPMIN', KEYS[3])[1]
    if not id then return false end
    local entry = redis.call('HGET', KEYS[4], id)
    redis.call('HDEL', KEYS[4], id)
    if id == me then return true end
    now = now or clock(proposal)
    local alive, ttl, channel, value = string.match(entry or '', '^(%d+) (%d+) (%S+) (.*)$')
    if alive and tonumber(alive) * 1000 > now then
      local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
      local fence = next_fence(proposal)
      local readers = 1
      if channel ~= '-' then
        readers = redis.pcall('PUBLISH', channel, id .. ' ' .. fence .. ' ' .. lease .. ' ' .. KEYS[1])
      end
      if type(readers) == 'table' or readers > 0 then
        redis.call('SET', KEYS[1], value, 'PX', lease)
        return false
      end
    end
  end
end

