
-- Changes the limit of a semaphore that is in use. Its holders keep their permits. Its waiters then wait for permits of the new
-- limit, and those that fit are granted. A waiter whose weight exceeds the limit leaves the queue.
--
-- ARGV  1 new limit      2 in a repeated call, the limit before the first one, else "-"
--       3 in a repeated call, the ticket in the previous reply, else "0": waiters up to it are not examined again
--       4 client's time, us      5 lease of a hand-off, ms      6 run id      7 quorum
-- Reply {"resized", previous limit, permits in use, holders, 1 if work is left for a repeated call, else 0, ticket}
--       {"absent"} if it is not in use | {"taken", value, type} if the lock is no semaphore or, in a repeated call, if its limit has
--       changed since | {"noclock"} if TIME is denied, and the refusal of a claim
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.

local refused = refusal(ARGV[6], ARGV[7])
if refused then return refused end
local value, kind = occupant()
if not value then return {'absent'} end
local shared, limit, before, ticket = shared_lock(value, kind), tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not shared then return {'taken', value, kind or ''} end
local now, exact = clock(ARGV[4])
if not exact then return {'noclock'} end
now = math.floor(now / 1000)
if shared.mode ~= 's' or before and shared.limit ~= limit then
  value, kind = holds().described(shared, now)
  return value and {'taken', value, kind} or {'absent'}
end

local more
shared, more = grants().bury(shared, now)
if not shared then
  local _, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6])
  return {'absent', unread}
end
before = before or shared.limit
if shared.limit ~= limit then
  shared.limit, shared.value = limit, string.format('fencelock:WIRE:s:%d:%s', limit, string.match(value, '%d+$'))
  redis.call('SET', KEYS[1], shared.value, 'KEEPTTL')
end
if before ~= limit then
  local waiting = tolerant('ZRANGEBYSCORE', KEYS[3], '(' .. ticket, '+inf', 'WITHSCORES', 'LIMIT', 0, CAP) or {}
  for i = 1, #waiting, 2 do
    -- A waiter that can never be granted would give a free lock the previous limit.
    if not grants().take_over(waiting[i], before, limit) then leave(waiting[i]) end
    ticket = waiting[i + 1]
  end
  more = more or #waiting == 2 * CAP
end
local turn, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6], shared)
local held = redis.call('ZCOUNT', KEYS[6], string.format('%.0f', now), '+inf')
return {'resized', before, grants().used(shared), held, (more or turn == 'more') and 1 or 0, ticket, unread}
