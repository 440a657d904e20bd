-- Reads or writes the stock with a fencing token, unless the resource has seen a greater one.
--
-- KEYS  1 resource   ARGV  1 token   2 new stock, or "" to read      Reply  1, or 0 if rejected
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'stock', ARGV[2]) end
return 1
