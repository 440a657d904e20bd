-- Takes a permit from a counter. A missing counter is full.
--
-- KEYS  1 counter      ARGV  1 permits      Reply  1, or 0 if none is left
local left = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])
if left < 1 then return 0 end
redis.call('SET', KEYS[1], left - 1)
return 1
