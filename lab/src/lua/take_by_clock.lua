-- Takes a permit until a deadline, and removes those that have ended, both by the clock of the client.
--
-- KEYS  1 permits      ARGV  1 id   2 now   3 deadline   4 permits      Reply  1, or 0 if none is left
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
