--@granting
local value, kind = occupant()
local answer = 'absent'
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  answer = 'released'
else
  if tolerant('ZREM', KEYS[3], ARGV[1]) == 1 then
    tolerant('HDEL', KEYS[4], ARGV[1])
    tolerant('ZREM', KEYS[5], ARGV[1])
  end
  if value then return {'taken', value, kind or ''} end
end
local more = not refusal(ARGV[4], ARGV[5]) and advance(nil, ARGV[2], ARGV[3], ARGV[4]) == 'more'
return {answer, more and 1 or 0}
