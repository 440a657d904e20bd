-- Ends the hold that was seen, whoever has it, if it is still that one and of that kind.
--
-- ARGV  1 value that was seen      2 what it must be: "ours", "foreign" with an end, or "endless", foreign without one
--       3 client's time, us      4 lease of a hand-off, ms      5 run id      6 quorum
-- Reply {1 if it was ended, 0 if it is another by now, 1 if there are more dead waiters than one call passes over, else 0}
-- An answer after an unreadable entry was found in line ends with {holder id, length of the entry, beginning of the entry}.
--
-- What is no string, or longer than any lock, is never ended, and neither is the value of a later version, "fencelock:...". One of
-- ours has a fence beside it.

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
