-- Gives a held lock more time. It never takes time away, and never creates.
--
-- ARGV  1 holder id      2 ttl, ms
-- Reply {"renewed", waiters} | {"absent"} | {"taken", value, type}

local value, kind = occupant()
if not value then return {'absent'} end
if not is_holder(value, ARGV[1]) then return {'taken', value, kind or ''} end
-- Written even if it changes nothing: what a replica confirms is the last thing that was written.
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
-- Read once more: with tracking on, the server tells of changes to what was read last, and forgets that when it is written.
redis.call('GET', KEYS[1])
return {'renewed', redis.call('ZCARD', KEYS[3])}
