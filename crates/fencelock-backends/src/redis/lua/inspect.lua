-- Who has the lock, as far as one look can tell. It writes nothing.
--
-- ARGV  1 run id      2 quorum: for a client that asks for a quarantine
-- Reply {value, type, pttl, fence or "", waiters}, or nil if it is free; what keeps the server from granting, as the reply to a
--       claim, where nobody has the lock and the server may have forgotten who does

local value, kind = occupant()
if not value then return refusal(ARGV[1], ARGV[2]) or false end
local last = fence()
return {value, kind or '', redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
