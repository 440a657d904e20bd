-- Ends the hold of a reader.
--
-- KEYS  1 lock      ARGV  1 id      Reply  1, or 0 if the client does not read
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
return 1
