-- Acquires the lock and creates its fencing token in one step, like the script of fencelock without its queue.
-- A token follows the time of the server, so that it also increases on a server that has lost the previous one.
--
-- KEYS  1 lock   2 fence      ARGV  1 value   2 ttl, ms      Reply  the token, or 0 if another client holds the lock
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local fence = math.max((tonumber(redis.call('GET', KEYS[2]) or '0')) + 1, time[1] * 1000000 + time[2])
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[2], fence)
return tonumber(fence)
