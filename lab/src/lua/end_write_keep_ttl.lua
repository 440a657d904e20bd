-- Ends one write of a client. If it still writes, the key lasts for another TTL, or longer if it does already.
--
-- KEYS  1 lock      ARGV  1 id   2 ttl, ms      Reply  1, or 0 if the client does not write
local me = ARGV[1] .. ':write'
if redis.call('HEXISTS', KEYS[1], me) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], me, -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))
  return 1
end
redis.call('HDEL', KEYS[1], me)
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
return 1
