-- The common case of acquire.lua, before any function is defined: the lock is free, no client waits, and the server may grant.
-- The effect is that of acquire.lua, with fewer calls. In every other case this part changes nothing, and acquire.lua follows.
--
-- A claim that can end here has four arguments, because each argument costs the server as much as a fifth of a command. Other claims
-- have those of acquire.lua.
--
-- ARGV  1 value to write: "<holder id> <owner>"      2 ttl, ms      3 fencing tokens wanted
--       4 arguments for later, separated by tabs: run id, quorum or nothing, then as in acquire.lua: intent, client's time,
--       life of a waiter, lease of a hand-off, channel
-- Reply the last token, a number, if as many tokens as wanted are granted; else as acquire.lua. An array would cost the server as
--       much as a command.

local wanted = not ARGV[5] and tonumber(ARGV[3])
-- One command for both. A key of another type exists as well.
if wanted and redis.pcall('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local time = redis.pcall('TIME')
  -- Not a number if TIME is denied.
  local now = not time.err and time[1] * 1000000 + time[2]
  local marker, open = KEYS[8] or not KEYS[5] and KEYS[4], now and now <= 9007199254740991
  if marker and open then
    -- See refusal.lua.
    local run_id, quorum = string.match(ARGV[4], '^([^\t]*)\t([^\t]*)')
    local found = quorum ~= '' and redis.pcall('HMGET', marker, 'epoch', 'until', 'quorum', 'version')
    local till = found and not found.err and tonumber(found[2])
    open = not found or till and till <= math.floor(now / 1000) and found[1] == run_id and found[3] == quorum
      and found[4] == 'WIRE'
  end
  if open then
    local last = string.format('%d', now)
    local text = redis.pcall('SET', KEYS[2], last, 'PX', '86400000', 'GET')
    -- Not a number if the fence has another type or another content, or if the server does not know this form of SET.
    local previous = tonumber(text or 0)
    -- The tokens end with the server's time if the fence is behind it; see tokens.lua.
    if previous and previous >= 0 and previous + 1 <= now then
      -- The lock does not exist, so GET makes the reply nil, which costs less than a status.
      redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'GET')
      local count = previous == 0 and 1 or math.min(wanted, now - previous)
      if count == wanted then return now end
      return {'granted', last, count}
    end
    if type(text) == 'string' then redis.call('SET', KEYS[2], text, 'PX', '86400000') end
  end
end

