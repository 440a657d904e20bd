-- Generates fencing tokens.

-- The server's time in microseconds, and true; the client's time, and false, if TIME is denied.
local function clock(client_time)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(client_time), false end
  return time[1] * 1000000 + time[2], true
end

-- The last of the next tokens, and how many they are. A server that decides alone lets them end with its own time, or one
-- above the fence where that is not behind it, and reach down to the fence: it is never ahead of its time, so that it
-- may forget. One that remembers no token gives one. `now` and `exact` are what clock() has told, if it has.
local function next_block(client_time, wanted, proposed, now, exact)
  local CLAMP = 1000000      -- on a node of a quorum, a proposal may lie 1 s off the server's clock
  local FENCE_MAX = 9007199254740991
  if not now then now, exact = clock(client_time) end
  wanted = tonumber(wanted)
  local previous = fence()
  local last, count = math.max(now, previous + 1), 1
  if proposed then
    -- On a node of a quorum they end with the proposal, as far as the server's time bears it out: as many as are wanted, unless
    -- they would lie more than 1 s ahead of that time, or, where the fence was forgotten, behind it.
    last = tonumber(client_time)
    if exact then last = math.max(now - CLAMP, math.min(last, now + CLAMP)) end
    count = math.max(1, math.min(wanted, math.min(now + CLAMP, FENCE_MAX) - previous))
    last = math.max(last, previous + count)
    count = math.min(count, last - (now - CLAMP) + 1)
  elseif previous > 0 then
    count = math.min(wanted, last - previous)
  end
  if last > FENCE_MAX then
    -- The fast path cannot keep the rest of its TTL.
    redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
    error('ERR fencelock: the fencing token of this key has reached 2^53', 0)
  end
  last = string.format('%d', last)
  redis.call('SET', KEYS[2], last, 'PX', FENCE_TTL)
  return last, count
end

