-- The common case of release.lua, before anything is defined: the client holds the lock, and nobody waits. In every other case it
-- writes nothing, and release.lua follows.
--
-- ARGV  1 "<holder id> "      2 what is needed later, separated by tabs: run id, quorum or nothing, then as in release.lua client's
--       time and lease of a hand-off
-- Reply 1, or as release.lua

-- As much of the value as tells whose it is: the holder id, and what follows it in a value of ours.
if redis.pcall('GETRANGE', KEYS[1], '0', '32') == ARGV[1] and redis.pcall('ZCARD', KEYS[3]) == 0 then
  return redis.call('DEL', KEYS[1])
end

