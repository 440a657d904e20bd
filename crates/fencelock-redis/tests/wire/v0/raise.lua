-- What all scripts of a lock share. Each is made of this, of those parts that it needs, and of its own: a function costs time where
-- it is defined, not only where it is called.
--
-- KEYS  1 lock      string: "<holder id> <owner>", or whatever another program put there
--       2 fence     string: the greatest fencing token given, microseconds; the last of a block
--       3 line      zset: holder ids of waiters by ticket
--       4 waiters   hash: holder id -> "<ttl, ms> <tokens wanted> <channel or -> <value>"
--       5 alive     zset: holder ids of waiters by the end of their life, ms: until then they count without another poll
--       6 marker    only for clients that ask for a quarantine, see handshake.lua
--
-- What may grant ends its arguments with the run id of the server that the connection began with, "-" if that is not
-- known; with a marker also with the quorum that it must name.
--
-- One script runs at a time, and the server's time stands still while it runs. Nothing that a client can make long is
-- gone through in one call: what is left is told with "more", and whoever asks again goes on with it.

local FENCE_TTL = 86400000   -- 24 h idle. The fence follows the time, so forgetting it then cannot lower it.
local CUT = 300              -- bytes of a value that are read: no lock is longer

-- As redis.call, but what another program has put there, of another type, is as if it was not there.
local function tolerant(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  -- Once more, for the server's own error: Redis 6.2 cannot raise one that was caught.
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call(...) end
  return false
end

-- The value of the lock, or nil; the value "" and the type where it is no string; the beginning and "string <length>" where it
-- is longer than any lock.
local function occupant()
  local value = tolerant('GETRANGE', KEYS[1], 0, CUT)
  if not value then return '', redis.call('TYPE', KEYS[1]).ok end
  if value == '' and redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  if #value > CUT then return string.sub(value, 1, CUT), 'string ' .. redis.call('STRLEN', KEYS[1]) end
  return value
end

local function is_holder(value, id)
  return value and string.sub(value, 1, 32) == id and (#value == 32 or string.sub(value, 33, 33) == ' ')
end

-- The greatest fencing token given; 0 if there is none, or if what is there is no number.
local function fence()
  return tonumber(tolerant('GET', KEYS[2])) or 0
end

-- What keeps this server from granting, as the reply to a claim; nil if nothing does, or if nobody asked for a guard.
local function refusal(epoch, quorum)
  if not KEYS[6] then return nil end
  local marker = redis.call('HMGET', KEYS[6], 'epoch', 'until', 'quorum', 'nodes')
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', marker[4] or ''} end
  if till == 0 then return nil end
  -- Not by anybody else's clock: where TIME is refused, so is the claim.
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end

-- Makes the fence of a held lock this one: how the nodes of a quorum agree on one token.
--
-- ARGV  1 holder id      2 fence, us      3 run id      4 quorum
-- Reply 1 if the lock is the holder's and its fence is this one now, 0 if it is not, or its fence was beyond

if refusal(ARGV[3], ARGV[4]) then return 0 end
local value = occupant()
if not is_holder(value, ARGV[1]) then return 0 end
if fence() > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
return 1
