-- Releases the lock, or removes a waiter from the queue.
--
-- ARGV  from those of release_fast.lua:
--       1 holder id      2 client's time, us      3 lease of a hand-off, ms      4 run id      5 quorum
-- Reply {"released" | "absent", 1 if more dead waiters or ended holds are left than one call removes, else 0}
--       {"taken", value, type}; if several clients hold the lock, followed by the same number
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- A server that may not grant does not hand over either: its queue may be older than the data that it lost. The check is skipped if
-- no client waits. After the reply 1 the client calls the script again, or leaves the rest to the next claim.

-- The arguments, from those of the common case.
local ARGV = (function(id, rest)
  local run_id, quorum, client_time, claim_ttl = string.match(rest, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  return {string.sub(id, 1, 32), client_time, claim_ttl, run_id, quorum}
end)(ARGV[1], ARGV[2])

local value, kind = occupant()
local shared, answer, more, exact, now = shared_lock(value, kind), 'absent'
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  value, answer = nil, 'released'
elseif shared then
  now, exact = clock(ARGV[2])
  now = math.floor(now / 1000)
  if not exact then
    -- Only the server's time shows whether a hold has ended. This call raises the error of TIME.
    if tolerant('ZSCORE', KEYS[6], ARGV[1]) then redis.call('TIME') end
    shared = nil
  else
    if holds().rest(ARGV[1], now) then
      grants().remove(shared, {ARGV[1]})
      answer = 'released'
    end
    shared, more = grants().bury(shared, now)
    if not shared then value = nil end
  end
end
if answer == 'absent' then leave(ARGV[1]) end
if value and not shared then return {'taken', value, kind or ''} end
local others
if shared and answer == 'absent' then others, kind = holds().described(shared, now) end
local turn, unread
local may = not KEYS[8] or (tolerant('ZCARD', KEYS[3]) or 0) > 0 and not refusal(ARGV[4], ARGV[5])
if may then turn, unread = advance(nil, ARGV[2], ARGV[3], ARGV[4], shared) end
local left = (more or turn == 'more') and 1 or 0
if others then return {'taken', others, kind, left, unread} end
return {answer, left, unread}
