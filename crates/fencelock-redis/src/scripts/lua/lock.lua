-- Shared by all scripts of a lock. Each script consists of this file, the parts that it needs, and its own code. A function costs
-- time when it is defined, not only when it is called, so the common case of a script, if it has one, precedes this file.
--
-- KEYS  1 lock      string: "<holder id> <owner>"; for several holders see shared.lua; or the value of another program
--       2 fence     string: the greatest fencing token granted, microseconds; the last one of a block
--       3 line      zset: holder ids of waiters by ticket
--       4 waiters   hash: holder id -> "<ttl, ms> <tokens wanted> <channel or -> <value>", a tab, "WIRE", then for a claim
--                   that is not exclusive " <mode> <weight> <limit>", and fields of later versions. An exclusive grant writes
--                   the value to the lock.
--       5 alive     zset: holder ids of waiters by the end of their life, ms: until then they count as alive without another poll
--       6 holds     zset: holder ids by the end of their holds, ms            only of a lock that several clients hold together
--       7 held      hash: holder id -> "<weight> <token> <owner>", "#used" -> the sum of the weights of a semaphore        "
--       8 marker    only for clients that require a quarantine, which also send a quorum: see handshake.lua
--         absent    only for a node of a cluster: a key that never exists. While a slot is moved, the node refuses a script that
--                   names a missing key. Without this key it would run the script if all other keys exist, and would stop it in the
--                   middle when it uses a key that it has deleted.
--
-- WIRE is the version of the wire format. It is replaced before a script is sent, see lua.rs.
--
-- The common cases need the keys 1, 2 and 3, and the marker. Outside of a cluster, clients send only these, because each key costs
-- the server as much as a fifth of a command. The names of the other keys are then derived.
--
-- The last arguments of every script that may grant are the run id that the connection saw first, "-" if it is unknown, and,
-- if there is a marker, the quorum that it must name.
--
-- One script runs at a time, and the server's time does not change while it runs. The work of one call is limited: the reply
-- "more" means that work is left for another call.

if not KEYS[5] then
  local name = string.sub(KEYS[2], 1, -6)    -- without "fence"
  KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8] = name .. 'waiters', name .. 'alive', name .. 'holds', name .. 'held', KEYS[4]
end

local CAP = 32               -- maximum number of waiters that one call skips, and of ended holds that it removes
local FENCE_TTL = 86400000   -- 24 h without use. Tokens follow the time, so they still increase after the fence has expired.

-- Like redis.call, but a key of another type, written by another program, counts as missing.
local function tolerant(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  -- Calls again to raise the server's own error: Redis 6.2 cannot raise one that was caught.
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call(...) end
  return false
end

-- The value of the lock, or nil; for a key of another type, "" and the type; for a value longer than any lock, its beginning and
-- "string <length>".
local function occupant()
  local CUT = 300            -- maximum number of bytes that are read: no lock is longer
  local value = tolerant('GETRANGE', KEYS[1], 0, CUT)
  if not value then return '', redis.call('TYPE', KEYS[1]).ok end
  if value == '' and redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  if #value > CUT then return string.sub(value, 1, CUT), 'string ' .. redis.call('STRLEN', KEYS[1]) end
  return value
end

local function is_holder(value, id)
  return value and string.sub(value, 1, 32) == id and (#value == 32 or string.sub(value, 33, 33) == ' ')
end

-- The greatest fencing token granted; 0 if there is none, or if the value is not a number.
local function fence()
  return tonumber(tolerant('GET', KEYS[2])) or 0
end

-- The mode and limit of a lock that several clients hold together; nil for any other value.
local function shared_lock(value, kind)
  if not value or kind or string.find(value, 'fencelock:WIRE:', 1, true) ~= 1 then return nil end
  if string.find(value, '^fencelock:WIRE:r:0:[1-9]%d*$') then return {value = value, mode = 'r', limit = 0} end
  local limit = tonumber(string.match(value, '^fencelock:WIRE:s:([1-9]%d*):[1-9]%d*$'))
  return limit and limit <= 1000000 and {value = value, mode = 's', limit = limit} or nil
end

