-- Returns the holders of the lock. Read-only.
--
-- ARGV  1 run id      2 quorum: for a client that asks for a quarantine
-- Reply {value, type, pttl, fence or "", waiters}, or nil if it is free; if the lock is free and the
--       server may have forgotten its holder, the refusal of a claim
-- Of a lock that several clients hold together, pttl is the rest of the first hold that ends, and value and type as in shared.lua.

local value, kind = occupant()
local shared, rest = shared_lock(value, kind)
if shared then
  local time = redis.call('TIME')
  value, kind, rest = holds().described(shared, time[1] * 1000 + math.floor(time[2] / 1000))
end
if not value then return refusal(ARGV[1], ARGV[2]) or false end
local last = fence()
return {value, kind or '', rest or redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
