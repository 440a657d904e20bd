-- Evicts the hold that the client saw, if the lock still has this value and this kind.
--
-- ARGV  1 value that the client saw      2 expected kind: "ours", "foreign" with a TTL, or "endless", foreign without a TTL
--       3 client's time, us      4 lease of a hand-off, ms      5 run id      6 quorum
-- Reply {1 if it was evicted, 0 if the value has changed, 1 if there are more dead waiters than one call passes over, else 0}
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- The script never evicts a value that is not a string, that is longer than any lock, or that a later version wrote
-- ("fencelock:..."). A lock of fencelock has a fence key.

local value, kind = occupant()
if value ~= ARGV[1] or kind or string.sub(value, 1, 10) == 'fencelock:' then return {0, 0} end
local ends = redis.call('PTTL', KEYS[1]) >= 0
if ARGV[2] == 'ours' then
  if fence() == 0 then return {0, 0} end
elseif ends ~= (ARGV[2] == 'foreign') then
  return {0, 0}
end
redis.call('DEL', KEYS[1])
local turn, unread
if not refusal(ARGV[5], ARGV[6]) then turn, unread = advance(nil, ARGV[3], ARGV[4], ARGV[5]) end
return {1, turn == 'more' and 1 or 0, unread}
