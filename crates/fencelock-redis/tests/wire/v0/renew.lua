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

-- How many wait and are alive. Where TIME is refused, how many wait.
local function living()
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 0 end
  local time = redis.pcall('TIME')
  if time.err then return waiting end
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting
end

-- Gives a held lock more time. It never creates, and takes no time away that its holder counts on.
--
-- ARGV  1 holder id      2 ttl, ms      3 how long from now the holder may believe in its lease, ms, whatever comes of this
-- Reply {"renewed", waiters} | {"absent"} | {"taken", value, type}
--
-- A lease ends at a time of the server's clock. If that is set back the lease becomes longer than anybody asked for, and if its
-- holder died, nobody else would have the lock for as long. So what is more than 1 s longer than both is cut to the longer one.

local SLACK = 1000

local value, kind = occupant()
if not value then return {'absent'} end
if not is_holder(value, ARGV[1]) then return {'taken', value, kind or ''} end
local left, ttl, told = redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = math.max(ttl, told)
if left > longest + SLACK then left = longest end
-- Written even if it changes nothing: what a replica confirms is the last thing that was written.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, ttl)))
-- Who has a key has its fence: it is shown, and says that the key is one of ours.
redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
-- Read once more: with tracking on, the server tells of changes to what was read last, and forgets that when it is written.
redis.call('GET', KEYS[1])
return {'renewed', living()}
