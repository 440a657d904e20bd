-- The common case of renew.lua, before anything is defined: the client holds the lock, nobody waits, and the lease is not longer
-- than it may be. In every other case it writes nothing, and renew.lua follows.

do
  -- As much of the value as tells whose it is: the holder id, and what follows it in a value of ours.
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 32)
  if value == ARGV[1] .. ' ' and redis.pcall('ZCARD', KEYS[3]) == 0 then
    local left, ttl = redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])
    if left <= math.max(ttl, tonumber(ARGV[3])) + 1000 then
      redis.call('PEXPIRE', KEYS[1], left > ttl and string.format('%.0f', left) or ARGV[2])
      redis.call('PEXPIRE', KEYS[2], '86400000')
      redis.call('GET', KEYS[1])
      return {'renewed', 0}
    end
  end
end

