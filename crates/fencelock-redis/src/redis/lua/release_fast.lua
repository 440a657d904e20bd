-- The common case of release.lua, before anything is defined: the client holds the lock, nobody waits, and the client asked for no
-- quarantine. In every other case it writes nothing, and release.lua follows.

if not KEYS[8] then
  -- As much of the value as tells whose it is: the holder id, and what follows it in a value of ours.
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 32)
  if value == ARGV[1] .. ' ' and redis.pcall('ZCARD', KEYS[3]) == 0 then
    redis.call('DEL', KEYS[1])
    return {'released', 0}
  end
end

