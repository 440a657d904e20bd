-- Acquires a lock to read, beside other readers, or if the client itself writes.
--
-- KEYS  1 lock      ARGV  1 id   2 ttl, ms      Reply  1, or 0 if another client writes
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 0 then return 0 end
if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))
return 1
