-- Renews a held lock. It never creates a lock, and never shortens a lease that the holder relies on.
--
-- ARGV  1 holder id      2 ttl, ms      3 how long the holder may still rely on its current lease, ms
-- Reply {"renewed", waiters} | {"absent"} | {"taken", value, type}
--
-- A lease ends at a time of the server's clock. If that clock is set back, the lease becomes longer than requested, and the lock
-- of a crashed holder would stay held. So a lease that is more than 1 s longer than both values is cut to the longer value.

local SLACK, TRACKED = 1000, 64

local value, kind = occupant()
if not value then return {'absent'} end
local shared, now, left = shared_lock(value, kind)
if shared then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  left = holds().rest(ARGV[1], now)
  if not left then
    value, kind = holds().described(shared, now)
    if not value then return {'absent'} end
  end
elseif is_holder(value, ARGV[1]) then
  left = redis.call('PTTL', KEYS[1])
end
if not left then return {'taken', value, kind or ''} end
local ttl, assumed = tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = math.max(ttl, assumed)
if left > longest + SLACK then left = longest end
left = math.max(left, ttl)
if shared then
  holds().prolong(ARGV[1], left, now)
else
  -- Written even if the TTL does not change: replicas confirm the last write.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
end
-- The fence of a held key must not expire: inspect.lua returns it, and it marks the key as a lock of fencelock.
redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
-- Reads the lock again: client tracking reports changes to keys that were read, and a write ends the tracking of a key. A lock with
-- very many holders is not read, because each change would be reported to all of them.
if not shared or redis.call('ZCARD', KEYS[6]) <= TRACKED then redis.call('GET', KEYS[1]) end
return {'renewed', living()}
