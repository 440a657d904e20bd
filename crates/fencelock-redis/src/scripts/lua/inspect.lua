-- Returns the holders of the lock. Read-only.
--
-- ARGV  1 run id      2 quorum: for a client that requires a quarantine
-- Reply {value, type, pttl, fence or "", waiters}, or the number of waiters if the lock is free; if it is free and the server may
--       have lost a grant, the refusal of a claim
-- If several clients hold the lock, pttl is the remaining time of the hold that ends first; for value and type see shared.lua.

local value, kind = occupant()
local shared, rest = shared_lock(value, kind)
if shared then
  local time = redis.call('TIME')
  value, kind, rest = holds().described(shared, time[1] * 1000 + math.floor(time[2] / 1000))
end
if not value then return refusal(ARGV[1], ARGV[2]) or living() end
local last = fence()
return {value, kind or '', rest or redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
