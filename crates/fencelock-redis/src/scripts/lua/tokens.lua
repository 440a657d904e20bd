-- Generates fencing tokens.

-- The server's time in microseconds, and true; the client's time, and false, if TIME is denied.
local function clock(client_time)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(client_time), false end
  return time[1] * 1000000 + time[2], true
end

-- Returns the last of the next tokens, and their number. By default the tokens end with the server's time, or one above the fence
-- if the fence is not behind the time, and start above the fence. So no token is ahead of the server's time, and tokens still
-- increase after a loss of data. Without a fence there is one token. `now` and `exact` are the results of clock(), if it was called.
local function next_block(client_time, wanted, proposed, now, exact)
  local CLAMP = 1000000      -- on a node of a quorum, the maximum distance of a proposal from the server's time, 1 s
  local FENCE_MAX = 9007199254740991
  if not now then now, exact = clock(client_time) end
  wanted = tonumber(wanted)
  local previous = fence()
  local last, count = math.max(now, previous + 1), 1
  if proposed then
    -- On a node of a quorum the tokens end with the proposal, clamped to the server's time: as many as wanted, unless they would be
    -- more than 1 s ahead of that time or, without a fence, more than 1 s behind it. If not all fit, a power of two: nodes whose
    -- clocks differ a little then grant the same.
    last = tonumber(client_time)
    if exact then last = math.max(now - CLAMP, math.min(last, now + CLAMP)) end
    local room = math.max(1, math.min(now + CLAMP, FENCE_MAX) - previous)
    if wanted <= room then
      count = math.max(1, wanted)
    else
      while count * 2 <= room do count = count * 2 end
    end
    last = math.max(last, previous + count)
    count = math.min(count, last - (now - CLAMP) + 1)
  elseif previous > 0 then
    count = math.min(wanted, last - previous)
  end
  if last > FENCE_MAX then
    -- The fast path cannot keep the remaining TTL of the fence.
    redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
    error('ERR fencelock: the fencing token of this key has reached 2^53', 0)
  end
  last = string.format('%d', last)
  redis.call('SET', KEYS[2], last, 'PX', FENCE_TTL)
  return last, count
end

