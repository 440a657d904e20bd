-- Acquires a lock to write; again, if the client writes already.
--
-- KEYS  1 lock      ARGV  1 id   2 ttl, ms      Reply  1, or 0 if other clients hold the lock
local mode, me = redis.call('HGET', KEYS[1], 'mode'), ARGV[1] .. ':write'
if mode and redis.call('HEXISTS', KEYS[1], me) == 0 then return 0 end
if not mode then redis.call('HSET', KEYS[1], 'mode', 'write') end
redis.call('HINCRBY', KEYS[1], me, 1)
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))
return 1
