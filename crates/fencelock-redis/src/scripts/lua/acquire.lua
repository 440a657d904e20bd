-- Acquires the lock, enqueues a waiter, or polls for either.
--
-- ARGV  1 intent: "try", "enqueue" or "poll"      2 holder id      3 value to write: "<holder id> <owner>"
--       4 ttl, ms      5 client's time, us      6 life of a waiter between two polls, ms      7 lease of a hand-off, ms
--       8 channel that wakes this waiter, or "-"      9 fencing tokens wanted
--       10 "own" of an exclusive claim, "r 1 0" of a shared one, "s <weight> <limit>" of permits; if 5 is the fence that a quorum
--       proposes to its nodes, "proposed" of an exclusive claim, "proposed r 1 0" of a shared one      11 run id      12 quorum
--       or those of the common case, see acquire_fast.lua
-- Reply {"granted", last token, how many}
--       {"yours"}                               the holder already has the lock; a poll confirms it and renews the full TTL
--       {"queued", ahead, last fence, server's time in us or -1, pttl, value, type}
--       {"busy", last fence, pttl, value, type}
--       {"class", mode, limit}                  the lock is held or requested as "r" or "s" with this limit, which conflicts with
--                                               the claim: it is not added to the queue
--       {"noclock"}                             the claim is not exclusive, and TIME is denied
--       {"gone"}                                a poll by a holder that has neither the lock nor a position in the queue
--       {"more"}                                more dead waiters or ended holds than one call removes: call again
--       {"unreadable"}                          the lock is free, but all waiters that one call examines are alive with entries
--                                               that cannot be read
--       {"version", version}                    with a marker: its version is not supported
--       {"handshake"}                           with a marker: it is missing, or belongs to another run of the server
--       {"nodeset", quorum, nodes}              with a marker: the server belongs to these nodes
--       {"quarantined", remaining ms}           with a marker: the server may have lost grants
--
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- If several clients hold the lock, pttl is the remaining time of the hold that ends first; for value and type see shared.lua.
--
-- Polls are refused as well: a grant that the server still has may be older than one that it lost.

-- Removes at most CAP dead waiters from the queue, except `me`, the caller. Returns their number.
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

-- The arguments, also of the common case.
local ARGV = ARGV[5] and ARGV or (function(value, ttl, wanted, rest)
  local run_id, quorum, intent, client_time, life, claim_ttl, channel =
    string.match(rest, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  return {intent, string.sub(value, 1, 32), value, ttl, client_time, life, claim_ttl, channel, wanted, 'own', run_id, quorum}
end)(ARGV[1], ARGV[2], ARGV[3], ARGV[4])

local refused = refusal(ARGV[11], ARGV[12])
if refused then return refused end

local intent, id, value_of_mine, ttl, client_time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local proposed, mode = string.match(ARGV[10], '^(proposed) ?(.*)')
mode = mode or ARGV[10]
local value, kind = occupant()
local shared = shared_lock(value, kind)
local mine = {mode = 'x'}
if mode ~= 'own' and mode ~= '' then mine = grants().mode_of('\tWIRE ' .. mode) end
mine.id, mine.value = id, value_of_mine
if mine.mode == 's' then grants().by_entry(mine) end
local unread, now, now_ms, exact

if is_holder(value, id) then
  -- Only a poll renews the TTL: a duplicate enqueue must not extend a lease that its client no longer wants.
  if intent ~= 'poll' then return {'yours'} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  local last = fence()
  return {'granted', last > 0 and string.format('%.0f', last) or (next_block(client_time, 1, proposed)), 1}
end

if shared or mine.mode ~= 'x' then
  now, exact = clock(client_time)
  now_ms = math.floor(now / 1000)
  if not exact then
    if mine.mode ~= 'x' then return {'noclock'} end
    shared = nil             -- busy, as with the value of another program
  end
end
if shared then
  local rest, more = holds().rest(id, now_ms)
  if rest then
    if intent ~= 'poll' then return {'yours'} end
    if rest < tonumber(ttl) then holds().prolong(id, tonumber(ttl), now_ms) end
    return {'granted', grants().token(mine, client_time), 1}
  end
  shared, more = grants().bury(shared, now_ms)
  if more then return {'more'} end
  if not shared then value = nil end
end

if not value or shared then
  local turn
  turn, unread, shared = advance(mine, client_time, ARGV[7], ARGV[11], shared)
  if shared and grants().conflicts(shared, mine) then
    leave(id)
    if turn == 'blocked' then
      local _, found = advance(nil, client_time, ARGV[7], ARGV[11], shared)
      unread = unread or found
    end
    return {'class', shared.mode, shared.limit, unread}
  end
  if turn == 'more' or turn == 'unreadable' then return {turn, unread} end
  if turn == 'given' then
    value = redis.call('GET', KEYS[1])
  elseif turn ~= 'blocked' and (not shared or grants().fits(shared, mine)) then
    if turn ~= 'mine' and intent == 'poll' then return {'gone', unread} end
    local last, count = next_block(client_time, ARGV[9], proposed)
    if mine.mode == 'x' then
      redis.call('SET', KEYS[1], mine.value, 'PX', ttl)
    else
      shared = grants().add(shared, mine, last, ttl, now_ms)
      -- There may be capacity for the next waiters as well.
      if turn == 'mine' then
        local _, found = advance(nil, client_time, ARGV[7], ARGV[11], shared)
        unread = unread or found
      end
    end
    return {'granted', last, count, unread}
  end
end

-- Of a claim that was not granted: the reply "busy", or a position in the queue.

local LINE_TTL = 3600000     -- 1 h: much longer than the life of a waiter that does not poll.

if not now and (shared or intent ~= 'try') then
  now, exact = clock(client_time)
  now_ms = math.floor(now / 1000)
end
if mine.mode ~= 'x' and intent ~= 'poll' and not tolerant('ZSCORE', KEYS[3], id) then
  local other = grants().last_waiter(now)
  if other and grants().conflicts(other, mine) then return {'class', other.mode, other.limit, unread} end
end
local last, rest = string.format('%.0f', fence())
if shared then value, kind, rest = holds().described(shared, now_ms) end
if intent == 'try' then return {'busy', last, rest or redis.call('PTTL', KEYS[1]), value, kind or '', unread} end

local ahead = redis.call('ZRANK', KEYS[3], id)
if not ahead and intent == 'poll' then return {'gone', unread} end
if purge(id, now_ms) > 0 and ahead then ahead = redis.call('ZRANK', KEYS[3], id) end
if not ahead then
  local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  -- A ticket is a thousand times the time of arrival, in ms, but greater than the last one.
  local ticket = math.max(math.floor((last[2] or 0) / 1000) + 1, now_ms) * 1000
  redis.call('ZADD', KEYS[3], string.format('%.0f', ticket), id)
  ahead = redis.call('ZCARD', KEYS[3]) - 1
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms + ARGV[6]), id)
local suffix = mine.mode == 'x' and '\tWIRE' or string.format('\tWIRE %s %d %d', mine.mode, mine.weight, mine.limit)
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s%s', ttl, ARGV[9], ARGV[8], mine.value, suffix))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, rest or redis.call('PTTL', KEYS[1]), value, kind or '', unread}
