-- How the line moves on.

local CAP = 32               -- waiters that one call passes over

-- The lock is free: it goes to the first waiter that is alive, under a short lease until that one confirms. A waiter whose
-- channel nobody reads has no process any more. Whoever is passed over is out of the line.
-- The message names the server: what a master publishes is also heard at its replicas, by who takes them for the master.
-- Returns "mine" if it came to `me`, who is then out of the line too; "given" if the lock is somebody else's now; "nobody" if
-- the line is empty; "more" if it passed over as many as one call may, and others are left.
local function advance(me, client_time, claim_ttl, run_id)
  -- Asked first, because a script that has begun to write may go on when the memory is full. What is no line has nobody in it.
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody' end
  local now, exact = clock(client_time)
  for _ = 1, CAP do
    local id = redis.call('ZPOPMIN', KEYS[3])[1]
    if not id then return 'nobody' end
    -- These may be no hash and no sorted set; then nothing is known of the waiter.
    local entry, alive = tolerant('HGET', KEYS[4], id), tonumber(tolerant('ZSCORE', KEYS[5], id))
    tolerant('HDEL', KEYS[4], id)
    tolerant('ZREM', KEYS[5], id)
    if id == me then return 'mine' end
    local ttl, wanted, channel, value = string.match(entry or '', '^(%d+) (%d+) (%S+) (.*)$')
    if ttl and alive and alive * 1000 > now then
      local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
      local last, count = next_block(client_time, wanted, false, now, exact)
      local readers = 1
      if channel ~= '-' then
        local message = id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. ' ' .. run_id .. ' ' .. KEYS[1]
        readers = redis.pcall('PUBLISH', channel, message)
      end
      if type(readers) == 'table' or readers > 0 then
        redis.call('SET', KEYS[1], value, 'PX', lease)
        return 'given'
      end
    end
  end
  return redis.call('EXISTS', KEYS[3]) == 1 and 'more' or 'nobody'
end

