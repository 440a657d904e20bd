-- A lock that several clients hold together: a shared lock (mode "r"), or permits of a semaphore (mode "s").
--
-- The value of the lock is "fencelock:WIRE:r:0:<first token>" or "fencelock:WIRE:s:<limit>:<first token>". KEYS[6] and KEYS[7] count only
-- while the lock has this value. If another program deletes or replaces the lock, all its holds end, and the two keys expire.
-- The lock expires after its last hold, never before it. A hold ends when the server's time is past its end, even if it has not
-- been removed. Only the server's time counts.

local HOLDS
-- The functions for such locks, defined only when they are needed: an exclusive lock must not pay for them.
local function holds()
  if HOLDS then return HOLDS end
  local SHARE = 8            -- the lock outlasts its last hold by this fraction of a lease, so that few renewals write to it
  local KEEP = 60000         -- how much longer the side keys live than the lock, ms

  -- The remaining time of a hold, ms; nil if there is none.
  local function rest(id, now)
    local till = tonumber(tolerant('ZSCORE', KEYS[6], id))
    return till and till >= now and till - now or nil
  end

  -- Makes the lock and its side keys last until a hold with this remaining time ends.
  local function outlast(left)
    -- `>` because some servers count TTLs from the start of the script, so the last millisecond is not reliable.
    if redis.call('PTTL', KEYS[1]) > left then return end
    left = left + math.floor(left / SHARE)
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', left + KEEP))
    redis.call('PEXPIRE', KEYS[7], string.format('%.0f', left + KEEP))
  end

  -- Sets the remaining time of a hold. The first write is one that is allowed when the memory is full, because then the others are
  -- allowed too. Always writes: replicas confirm the last write.
  local function prolong(id, left, now)
    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', math.max(redis.call('PTTL', KEYS[6]), left + KEEP)))
    redis.call('ZADD', KEYS[6], string.format('%.0f', now + left), id)
    outlast(left)
  end

  -- Describes the lock in replies, in place of its value and type: the value and the number of holds, then a line for each of the
  -- holds that end first: holder id, remaining ms, weight, token and owner. The third result is the remaining time of the first one.
  local function described(shared, now)
    local SHOWN, CUT = 20, 300 -- holds, and bytes of an entry: none of ours is longer
    local from = string.format('%.0f', now)
    local found = tolerant('ZRANGEBYSCORE', KEYS[6], from, '+inf', 'WITHSCORES', 'LIMIT', 0, SHOWN) or {}
    if not found[1] then return nil end
    local lines = {shared.value .. ' ' .. redis.call('ZCOUNT', KEYS[6], from, '+inf')}
    for i = 1, #found, 2 do
      local entry = string.sub(tolerant('HGET', KEYS[7], found[i]) or '', 1, CUT)
      lines[#lines + 1] = string.format('%s %.0f %s', found[i], found[i + 1] - now, entry)
    end
    return table.concat(lines, '\n'), 'shared', found[2] - now
  end

  HOLDS = {rest = rest, outlast = outlast, prolong = prolong, described = described}
  return HOLDS
end

