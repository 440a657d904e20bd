-- Raises the fence of a hold, so that the nodes of a quorum agree on one token. If several clients hold the lock, only the token
-- of this hold is replaced, and the fence may already be greater: the other readers keep their tokens.
--
-- ARGV  1 holder id      2 token, us      3 run id      4 quorum
-- Reply 1 if the hold has this token and the fence is not below it, 0 if there is no hold or it was granted a greater token

if refusal(ARGV[3], ARGV[4]) then return 0 end
local value, kind = occupant()
local shared, granted, weight, owner = shared_lock(value, kind)
if is_holder(value, ARGV[1]) then
  granted = fence()          -- the last grant of an exclusive lock is that of its holder
elseif shared then
  local time = redis.call('TIME')
  if holds().rest(ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000)) then
    local entry = tolerant('HGET', KEYS[7], ARGV[1]) or ''
    weight, granted, owner = string.match(entry, '^([1-9]%d*) ([1-9]%d*) (.*)')
  end
end
if not granted or tonumber(granted) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], string.format('%.0f', math.max(fence(), tonumber(ARGV[2]))), 'PX', FENCE_TTL)
if weight then redis.call('HSET', KEYS[7], ARGV[1], weight .. ' ' .. ARGV[2] .. ' ' .. owner) end
return 1
