-- Raises the fence of a held lock, so that the nodes of a quorum agree on one token.
--
-- ARGV  1 holder id      2 fence, us      3 run id      4 quorum
-- Reply 1 if the holder has the lock and the fence was raised, 0 if another client has it or the fence was greater

if refusal(ARGV[3], ARGV[4]) then return 0 end
local value = occupant()
if not is_holder(value, ARGV[1]) then return 0 end
if fence() > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
return 1
