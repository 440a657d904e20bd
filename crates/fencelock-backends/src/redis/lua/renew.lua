-- Gives a held lock more time. It never creates, and takes no time away that its holder counts on.
--
-- ARGV  1 holder id      2 ttl, ms      3 how long from now the holder may believe in its lease, ms, whatever comes of this
-- Reply {"renewed", waiters} | {"absent"} | {"taken", value, type}
--
-- A lease ends at a time of the server's clock. If that is set back the lease becomes longer than anybody asked for, and if its
-- holder died, nobody else would have the lock for as long. So what is more than 1 s longer than both is cut to the longer one.

local SLACK = 1000

local value, kind = occupant()
if not value then return {'absent'} end
if not is_holder(value, ARGV[1]) then return {'taken', value, kind or ''} end
local left, ttl, told = redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = math.max(ttl, told)
if left > longest + SLACK then left = longest end
-- Written even if it changes nothing: what a replica confirms is the last thing that was written.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, ttl)))
-- Who has a key has its fence: it is shown, and says that the key is one of ours.
redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
-- Read once more: with tracking on, the server tells of changes to what was read last, and forgets that when it is written.
redis.call('GET', KEYS[1])
return {'renewed', living()}
