-- Shared by the scripts of a completion, which records the latest success of the work of a lock.
--
-- KEYS  1 lock          see lock.lua
--       2 completion    string: "2 <end, us> <fencing token> <grant of the run, us> <owner>"
--       3 marker        only for clients that require a quarantine, see handshake.lua

local LONGEST = 320          -- bytes of a completion

-- The completion, or "" if there is none; if it cannot be read, also the type of the key.
local function completion()
  local text = redis.pcall('GETRANGE', KEYS[2], 0, LONGEST)
  if type(text) == 'table' then
    -- Raises the server's own error; see lock.lua.
    if not string.find(text.err, 'WRONGTYPE', 1, true) then redis.call('GETRANGE', KEYS[2], 0, LONGEST) end
    return '', redis.call('TYPE', KEYS[2]).ok
  end
  if text == '' and redis.call('EXISTS', KEYS[2]) == 0 then return '' end
  local till, token, granted = string.match(text, '^2 ([1-9]%d*) ([1-9]%d*) ([1-9]%d*) ')
  -- A double represents exactly every number of 15 digits, and the times and tokens of 16 digits.
  local is_long = not till or #text > LONGEST or #till > 16 or #token > 16 or #granted > 16
  if is_long then return string.sub(text, 1, 60), 'string' end
  return text
end

local function now_us()
  -- Only the server's clock counts: if TIME is denied, the call fails.
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
