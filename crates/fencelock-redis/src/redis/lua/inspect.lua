-- Returns the holder of the lock. Read-only.
--
-- ARGV  1 run id      2 quorum: for a client that asks for a quarantine
-- Reply {value, type, pttl, fence or "", waiters}, or nil if it is free; if the lock is free and the
--       server may have forgotten its holder, the refusal of a claim

local value, kind = occupant()
if not value then return refusal(ARGV[1], ARGV[2]) or false end
local last = fence()
return {value, kind or '', redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
