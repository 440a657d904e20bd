-- Renews a held lock. It never creates a lock, and never shortens a lease that the holder relies on.
--
-- ARGV  1 holder id      2 ttl, ms      3 how long from now the holder may rely on its current lease, ms
-- Reply {"renewed", waiters} | {"absent"} | {"taken", value, type}
--
-- A lease ends at a time of the server's clock. If that clock is set back, the lease becomes longer than requested, and the lock
-- of a dead holder would stay held. So a lease that is more than 1 s longer than both values is cut to the longer value.

local SLACK = 1000

local value, kind = occupant()
if not value then return {'absent'} end
if not is_holder(value, ARGV[1]) then return {'taken', value, kind or ''} end
local left, ttl, told = redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = math.max(ttl, told)
if left > longest + SLACK then left = longest end
-- Written even if nothing changes: replicas confirm the last write.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, ttl)))
-- A held key keeps its fence: inspect shows it, and it marks the key as a lock of fencelock.
redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
-- Read again: client tracking reports changes to keys that were read, and a write ends the tracking of a key.
redis.call('GET', KEYS[1])
return {'renewed', living()}
