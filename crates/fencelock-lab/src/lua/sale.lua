-- Writes the remaining stock with a fencing token and records the sale, unless the resource has seen a greater token.
--
-- KEYS  1 resource   2 sales      ARGV  1 token   2 new stock   3 amount      Reply  1, or 0 if rejected
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'stock', ARGV[2])
redis.call('INCRBY', KEYS[2], ARGV[3])
return 1
