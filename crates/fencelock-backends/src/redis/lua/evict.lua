-- Ends the hold that was seen, whoever has it, if it is still that one.
--
-- ARGV  1 value that was seen      2 type that was seen, or ""      3 client's time, us      4 lease of a hand-off, ms
--       5 run id      6 quorum
-- Reply 1 if it was ended, 0 if it is another by now

local value, kind = occupant()
if value ~= ARGV[1] or (kind or '') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
if not refusal(ARGV[5], ARGV[6]) then advance(nil, ARGV[3], ARGV[4], ARGV[5]) end
return 1
