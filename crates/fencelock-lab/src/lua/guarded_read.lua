-- Reads the stock with the fencing token of a reader, unless the resource has seen a greater one of a writer.
--
-- KEYS  1 resource   ARGV  1 token      Reply  1, or 0 if rejected
local token = tonumber(ARGV[1])
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > token then return 0 end
if tonumber(redis.call('HGET', KEYS[1], 'reader') or '0') < token then redis.call('HSET', KEYS[1], 'reader', ARGV[1]) end
return 1
