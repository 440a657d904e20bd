-- Writes what is left for the bearer of a fencing token and notes the sale, unless a greater token was here before.
--
-- KEYS  1 resource   2 sales      ARGV  1 token   2 new stock   3 amount      Reply  1, or 0 for refused
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'stock', ARGV[2])
redis.call('INCRBY', KEYS[2], ARGV[3])
return 1
