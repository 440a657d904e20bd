-- The common case of release.lua, before any function is defined: the client holds the lock, and no client waits. In every other
-- case this part writes nothing, and release.lua follows.
--
-- ARGV  1 "<holder id> "      2 arguments for later, separated by tabs: run id, quorum or nothing, then as in release.lua: client's
--       time and lease of a hand-off
-- Reply 1, or as release.lua

-- The part of the value that identifies the holder: the holder id, and the separator that follows it.
if redis.pcall('GETRANGE', KEYS[1], '0', '32') == ARGV[1] and redis.pcall('ZCARD', KEYS[3]) == 0 then
  return redis.call('DEL', KEYS[1])
end

