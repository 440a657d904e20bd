-- Makes the fence of a held lock this one: how the nodes of a quorum agree on one token.
--
-- ARGV  1 holder id      2 fence, us      3 run id      4 quorum
-- Reply 1 if the lock is the holder's and its fence is this one now, 0 if it is not, or its fence was beyond

if refusal(ARGV[3], ARGV[4]) then return 0 end
local value = occupant()
if not is_holder(value, ARGV[1]) then return 0 end
if fence() > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
return 1
