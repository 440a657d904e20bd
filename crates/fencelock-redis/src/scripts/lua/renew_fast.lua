-- The common case of renew.lua, before any function is defined: the client holds the lock, no client waits, and the lease does not
-- have to be cut. In every other case this part writes nothing, and renew.lua follows.

do
  -- The part of the value that identifies the holder: the holder id, and the separator that follows it.
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

