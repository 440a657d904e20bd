-- Acquires the lock, enqueues a waiter, or polls for either.
--
-- ARGV  1 intent: "try", "enqueue" or "poll"      2 holder id      3 value to write: "<holder id> <owner>"
--       4 ttl, ms      5 client's time, us      6 life of a waiter between two polls, ms      7 lease of a hand-off, ms
--       8 channel that wakes this waiter, or "-"      9 fencing tokens wanted
--       10 "proposed" if 5 is the fence that a quorum proposes to its nodes, else "own"      11 run id      12 quorum
-- Reply {"granted", last token, how many}
--       {"yours"}                               the holder already has the lock; a poll confirms it and renews the full TTL
--       {"queued", ahead, last fence, server's time in us or -1, pttl, value, type}
--       {"busy", last fence, pttl, value, type}
--       {"gone"}                                a poll by a holder that has neither the lock nor a position in the queue
--       {"more"}                                the lock is free, and there are more dead waiters than one call passes over:
--                                               ask again
--       {"unreadable"}                          the lock is free, and as many waiters as one call looks at stand first in line,
--                                               alive, with entries that cannot be read
--       {"version", version}                    with a marker: its version is not supported
--       {"handshake"}                           with a marker: it is missing, or belongs to another run of the server
--       {"nodeset", quorum, nodes}              with a marker: the server belongs to these nodes
--       {"quarantined", rest in ms}             with a marker: the server may have forgotten what it granted
--
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- Polls are refused as well: a grant that the server remembers may be older than one that it forgot.

local LINE_TTL = 3600000     -- 1 h. Far longer than the life of a waiter that does not poll.

local refused = refusal(ARGV[11], ARGV[12])
if refused then return refused end

local intent, id, mine, ttl, client_time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local proposed = ARGV[10] == 'proposed'
local value, kind = occupant()
local unread

if is_holder(value, id) then
  -- Only a poll renews the TTL: a duplicate enqueue must not extend a lease that its client no longer wants.
  if intent ~= 'poll' then return {'yours'} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  local last = fence()
  return {'granted', last > 0 and string.format('%.0f', last) or (next_block(client_time, 1, proposed)), 1}
end

if not value then
  local turn
  turn, unread = advance(id, client_time, ARGV[7], ARGV[11])
  if turn == 'given' then
    value = redis.call('GET', KEYS[1])
  else
    if turn == 'more' or turn == 'unreadable' then return {turn, unread} end
    if turn ~= 'mine' and intent == 'poll' then return {'gone'} end
    local last, count = next_block(client_time, ARGV[9], proposed)
    redis.call('SET', KEYS[1], mine, 'PX', ttl)
    return {'granted', last, count, unread}
  end
end

local last = string.format('%.0f', fence())
if intent == 'try' then return {'busy', last, redis.call('PTTL', KEYS[1]), value, kind or '', unread} end

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
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s\t1', ttl, ARGV[9], ARGV[8], mine))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, redis.call('PTTL', KEYS[1]), value, kind or '', unread}
