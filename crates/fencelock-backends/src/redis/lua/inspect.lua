-- Who has the lock, as far as one look can tell. It writes nothing.
--
-- ARGV  none
-- Reply {value, type, pttl, fence or "", waiters}, or nil if it is free

local value, kind = occupant()
if not value then return false end
local last = fence()
return {value, kind or '', redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
