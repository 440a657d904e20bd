-- Who has the lock, as far as one look can tell.
--
-- ARGV  none
-- Reply {value, type, pttl, fence, waiters}, or nil if it is free

local value, kind = occupant()
if not value then return false end
return {value, kind or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '', redis.call('ZCARD', KEYS[3])}
