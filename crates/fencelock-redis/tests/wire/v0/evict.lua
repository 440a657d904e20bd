--@granting
local value, kind = occupant()
if value ~= ARGV[1] or kind then return {0, 0} end
local ends = redis.call('PTTL', KEYS[1]) >= 0
if ARGV[2] == 'ours' then
  if fence() == 0 then return {0, 0} end
elseif ends ~= (ARGV[2] == 'foreign') then
  return {0, 0}
end
redis.call('DEL', KEYS[1])
local more = not refusal(ARGV[5], ARGV[6]) and advance(nil, ARGV[3], ARGV[4], ARGV[5]) == 'more'
return {1, more and 1 or 0}
