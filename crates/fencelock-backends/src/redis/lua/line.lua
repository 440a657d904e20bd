-- How the line moves on.

local CAP = 32               -- waiters that one call looks at

-- The lock is free: it goes to the first waiter that is alive, under a short lease until that one confirms. A waiter whose
-- channel nobody reads has no process any more. Whoever is passed over is out of the line, with one exception: a waiter that is
-- alive and whose entry cannot be read keeps its place until its life is over. Its client writes the entry anew with each poll.
-- The message names the server: what a master publishes is also heard at its replicas, by who takes them for the master.
-- Its key follows a tab in every version, so that whoever cannot read the rest knows what to ask for.
-- Returns "mine" if it came to `me`, who is then out of the line too; "given" if the lock is somebody else's now; "nobody" if
-- the line has nobody else; "more" if it looked at as many as one call may, and others are left; "unreadable" if none of those
-- could be read, so that another call would look at the same. Then, if there was one, the first that could not be read: its id, and
-- the length and the beginning of its entry.
local function advance(me, client_time, claim_ttl, run_id)
  -- Asked first, for mostly nobody waits. What is no line has nobody in it.
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody' end
  local now, exact = clock(client_time)
  -- What every version writes. What follows the first tab a later one has added: it asks for less than the whole lock, so an
  -- exclusive grant is right for it too.
  local COMMON = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)'
  local SHOWN = 16           -- bytes of an unreadable entry that are reported
  local kept, unread = 0
  for _ = 1, CAP do
    local id = redis.call('ZRANGE', KEYS[3], kept, kept)[1]
    if not id then return 'nobody', unread end
    -- These may be no hash and no sorted set; then nothing is known of the waiter.
    local alive, entry, ttl, wanted, channel, value = tonumber(tolerant('ZSCORE', KEYS[5], id))
    if alive and alive * 1000 > now then
      entry = tolerant('HGET', KEYS[4], id) or ''
      ttl, wanted, channel, value = string.match(entry, COMMON)
    end
    if entry and id ~= me and not is_holder(value, id) then
      kept = kept + 1
      unread = unread or {id, #entry, string.sub(entry, 1, SHOWN)}
    else
      redis.call('ZREM', KEYS[3], id)
      tolerant('HDEL', KEYS[4], id)
      tolerant('ZREM', KEYS[5], id)
      if id == me then return 'mine', unread end
      if entry then
        local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
        local last, count = next_block(client_time, wanted, false, now, exact)
        local readers = 1
        if channel ~= '-' then
          local message = '1 ' .. run_id .. ' ' .. id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. '\t' .. KEYS[1]
          readers = redis.pcall('PUBLISH', channel, message)
        end
        if type(readers) == 'table' or readers > 0 then
          redis.call('SET', KEYS[1], value, 'PX', lease)
          return 'given', unread
        end
      end
    end
  end
  if kept == CAP then return 'unreadable', unread end
  return redis.call('ZCARD', KEYS[3]) > kept and 'more' or 'nobody', unread
end

