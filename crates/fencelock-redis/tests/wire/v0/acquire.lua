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

-- How the next fencing tokens are drawn.

local CLAMP = 1000000        -- on a node of a quorum, a proposal may lie 1 s off the server's clock
local FENCE_MAX = 9007199254740991

-- Microseconds by the server's clock, and true; where TIME is refused, by the client's, and false.
local function clock(client_time)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(client_time), false end
  return time[1] * 1000000 + time[2], true
end

-- The last of the next tokens, and how many they are. A server that decides alone lets them end with its own time, or one
-- above the fence where that is not behind it, and reach down to the fence: it is never ahead of its time, so that it
-- may forget. One that remembers no token gives one. `now` and `exact` are what clock() has told, if it has.
local function next_block(client_time, wanted, proposed, now, exact)
  if not now then now, exact = clock(client_time) end
  wanted = tonumber(wanted)
  local previous = fence()
  local last, count = math.max(now, previous + 1), 1
  if proposed then
    -- On a node of a quorum they end with the proposal, as far as the server's time bears it out: as many as are wanted, unless
    -- they would lie more than 1 s ahead of that time, or, where the fence was forgotten, behind it.
    last = tonumber(client_time)
    if exact then last = math.max(now - CLAMP, math.min(last, now + CLAMP)) end
    count = math.max(1, math.min(wanted, math.min(now + CLAMP, FENCE_MAX) - previous))
    last = math.max(last, previous + count)
    count = math.min(count, last - (now - CLAMP) + 1)
  elseif previous > 0 then
    count = math.min(wanted, last - previous)
  end
  if last > FENCE_MAX then error('ERR fencelock: the fencing token of this key has reached 2^53', 0) end
  last = string.format('%d', last)
  redis.call('SET', KEYS[2], last, 'PX', FENCE_TTL)
  return last, count
end

-- How the line moves on.

local CAP = 32               -- waiters that one call passes over

-- The lock is free: it goes to the first waiter that is alive, under a short lease until that one confirms. A waiter whose
-- channel nobody reads has no process any more. Whoever is passed over is out of the line.
-- The message names the server: what a master publishes is also heard at its replicas, by who takes them for the master.
-- Returns "mine" if it came to `me`, who is then out of the line too; "given" if the lock is somebody else's now; "nobody" if
-- the line is empty; "more" if it passed over as many as one call may, and others are left.
local function advance(me, client_time, claim_ttl, run_id)
  -- Asked first, because a script that has begun to write may go on when the memory is full. What is no line has nobody in it.
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody' end
  local now, exact = clock(client_time)
  for _ = 1, CAP do
    local id = redis.call('ZPOPMIN', KEYS[3])[1]
    if not id then return 'nobody' end
    -- These may be no hash and no sorted set; then nothing is known of the waiter.
    local entry, alive = tolerant('HGET', KEYS[4], id), tonumber(tolerant('ZSCORE', KEYS[5], id))
    tolerant('HDEL', KEYS[4], id)
    tolerant('ZREM', KEYS[5], id)
    if id == me then return 'mine' end
    local ttl, wanted, channel, value = string.match(entry or '', '^(%d+) (%d+) (%S+) (.*)$')
    if ttl and alive and alive * 1000 > now then
      local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
      local last, count = next_block(client_time, wanted, false, now, exact)
      local readers = 1
      if channel ~= '-' then
        local message = id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. ' ' .. run_id .. ' ' .. KEYS[1]
        readers = redis.pcall('PUBLISH', channel, message)
      end
      if type(readers) == 'table' or readers > 0 then
        redis.call('SET', KEYS[1], value, 'PX', lease)
        return 'given'
      end
    end
  end
  return redis.call('EXISTS', KEYS[3]) == 1 and 'more' or 'nobody'
end

-- Takes out of the line at most CAP of those whose life is over, but not `me`, who is asking. How many.
local function purge(me, now_ms)
  local dead = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, CAP)
  for i = #dead, 1, -1 do
    if dead[i] == me then table.remove(dead, i) end
  end
  if #dead == 0 then return 0 end
  redis.call('ZREM', KEYS[5], unpack(dead))
  redis.call('HDEL', KEYS[4], unpack(dead))
  redis.call('ZREM', KEYS[3], unpack(dead))
  return #dead
end

-- Takes the lock, or stands in line for it, or asks after either.
--
-- ARGV  1 intent: "try", "enqueue" or "poll"      2 holder id      3 value to write: "<holder id> <owner>"
--       4 ttl, ms      5 client's time, us      6 life of a waiter between two polls, ms      7 lease of a hand-off, ms
--       8 channel that wakes this waiter, or "-"      9 fencing tokens wanted
--       10 "proposed" if 5 is the fence that a quorum proposes to its nodes, else "own"      11 run id      12 quorum
-- Reply {"granted", last token, how many}
--       {"yours"}                               it is the holder's already; a poll confirms it and gives full time
--       {"queued", ahead, last fence, server's time in us or -1, pttl, value, type}
--       {"busy", last fence, pttl, value, type}
--       {"gone"}                                a poll by somebody who has neither lock nor place
--       {"more"}                                the lock is free, and there are more dead waiters than one call passes over:
--                                               ask again
--       {"handshake"}                           with a marker: it is not of this server, or there is none
--       {"nodeset", quorum, nodes}              with a marker: the server belongs to these
--       {"quarantined", rest in ms}             with a marker: the server may have forgotten what it granted
--
-- A poll is refused too: what a server remembers of a grant may be older than what it forgot.

local LINE_TTL = 3600000     -- 1 h. Far beyond the life of a waiter that says nothing.

local refused = refusal(ARGV[11], ARGV[12])
if refused then return refused end

local intent, id, mine, ttl, client_time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local proposed = ARGV[10] == 'proposed'
local value, kind = occupant()

if is_holder(value, id) then
  -- Only a poll changes the time: an enqueue that arrives twice must not stretch a lease that nobody wants any more.
  if intent ~= 'poll' then return {'yours'} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  local last = fence()
  return {'granted', last > 0 and string.format('%.0f', last) or (next_block(client_time, 1, proposed)), 1}
end

if not value then
  local turn = advance(id, client_time, ARGV[7], ARGV[11])
  if turn == 'given' then
    value = redis.call('GET', KEYS[1])
  else
    if turn == 'more' then return {'more'} end
    if turn ~= 'mine' and intent == 'poll' then return {'gone'} end
    local last, count = next_block(client_time, ARGV[9], proposed)
    redis.call('SET', KEYS[1], mine, 'PX', ttl)
    return {'granted', last, count}
  end
end

local last = string.format('%.0f', fence())
if intent == 'try' then return {'busy', last, redis.call('PTTL', KEYS[1]), value, kind or ''} end

local ahead = redis.call('ZRANK', KEYS[3], id)
if not ahead and intent == 'poll' then return {'gone'} end
local now, exact = clock(client_time)
local now_ms = math.floor(now / 1000)
if purge(id, now_ms) > 0 and ahead then ahead = redis.call('ZRANK', KEYS[3], id) end
if not ahead then
  local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  redis.call('ZADD', KEYS[3], last[2] and last[2] + 1 or 1, id)
  ahead = redis.call('ZCARD', KEYS[3]) - 1
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms + ARGV[6]), id)
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s', ttl, ARGV[9], ARGV[8], mine))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, redis.call('PTTL', KEYS[1]), value, kind or ''}
