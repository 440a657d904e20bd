-- Takes a permit, and removes those that have ended, both by the clock of the server.
--
-- KEYS  1 permits      ARGV  1 id   2 ttl, ms   3 permits      Reply  1, or 0 if none is left
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return 1
