-- Evicts the hold that the client saw, if the lock still has this value and this kind.
--
-- ARGV  1 value that the client saw; for "holds", "<holder id> <token>" of each, separated by spaces
--       2 expected kind: "ours", "foreign" with a TTL, or "endless", foreign without a TTL; if several clients hold the lock,
--       "shared" for all holds, or "holds" for some of them
--       3 client's time, us      4 lease of a hand-off, ms      5 run id      6 quorum
-- Reply {1 if a hold was evicted, 0 if the value has changed, 1 if more dead waiters are left than one call removes, else 0}
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- The script never evicts a value that is not a string, that is longer than any lock, or that a later version wrote
-- ("fencelock:..."). An exclusive lock of fencelock has a fence key.

local value, kind = occupant()
local shared = shared_lock(value, kind)
if ARGV[2] == 'holds' then
  local found = {}
  for id, token in string.gmatch(shared and ARGV[1] or '', '(%x+) (%d+)') do
    if string.match(tolerant('HGET', KEYS[7], id) or '', '^%d+ (%d+)') == token then found[#found + 1] = id end
  end
  if #found == 0 then return {0, 0} end
  local time = redis.call('TIME')
  grants().remove(shared, found)
  shared = grants().bury(shared, time[1] * 1000 + math.floor(time[2] / 1000))
  -- Writes to the lock. Client tracking reports this to its holders, so they check it.
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
elseif value ~= ARGV[1] or kind then
  return {0, 0}
elseif ARGV[2] == 'shared' then
  if not shared then return {0, 0} end
  redis.call('UNLINK', KEYS[1], KEYS[6], KEYS[7])
  shared = nil
else
  if string.sub(value, 1, 10) == 'fencelock:' then return {0, 0} end
  local ends = redis.call('PTTL', KEYS[1]) >= 0
  if ARGV[2] == 'ours' then
    if fence() == 0 then return {0, 0} end
  elseif ends ~= (ARGV[2] == 'foreign') then
    return {0, 0}
  end
  redis.call('DEL', KEYS[1])
end
local turn, unread
if not refusal(ARGV[5], ARGV[6]) then turn, unread = advance(nil, ARGV[3], ARGV[4], ARGV[5], shared) end
return {1, turn == 'more' and 1 or 0, unread}
