-- Turns an exclusive hold into the first hold of a shared lock, with a new token, and grants the lock to shared waiters at the
-- front of the queue. A repeated call returns the same token.
--
-- ARGV  1 holder id      2 ttl, ms      3 client's time, us      4 lease of a hand-off, ms
--       5 "proposed" if 3 is the token that a quorum proposes to its nodes, else "own"      6 run id      7 quorum
-- Reply {"downgraded", token, 1 if more dead waiters are left than one call removes, else 0} | {"absent"} | {"taken", value, type}
--       {"noclock"} if TIME is denied, and the refusal of a claim
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.

local refused = refusal(ARGV[6], ARGV[7])
if refused then return refused end
local value, kind = occupant()
if not value then return {'absent'} end
local shared, id, ttl = shared_lock(value, kind), ARGV[1], tonumber(ARGV[2])
if not shared and not is_holder(value, id) then return {'taken', value, kind or ''} end
local now, exact = clock(ARGV[3])
if not exact then return {'noclock'} end
now = math.floor(now / 1000)

local claim, last = {id = id, value = value, mode = 'r', weight = 1, limit = 0}
if shared then
  local rest = holds().rest(id, now)
  if not rest or shared.mode ~= 'r' then
    value, kind = holds().described(shared, now)
    return value and {'taken', value, kind} or {'absent'}
  end
  claim.value = id .. ' '    -- only if the entry is gone
  if rest < ttl then holds().prolong(id, ttl, now) end
  last = grants().token(claim, ARGV[3])
else
  last = next_block(ARGV[3], 1, ARGV[5] == 'proposed')
  shared = grants().add(nil, claim, last, math.max(ttl, redis.call('PTTL', KEYS[1])), now)
end
local turn, unread = advance(nil, ARGV[3], ARGV[4], ARGV[6], shared)
return {'downgraded', last, turn == 'more' and 1 or 0, unread}
