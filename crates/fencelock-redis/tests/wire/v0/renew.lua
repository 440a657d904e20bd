local FENCE_TTL = 86400000   -- 24 h idle. The fence follows the time, so forgetting it then cannot lower it.
local CUT = 300              -- bytes of a value that are read: no lock is longer
local function tolerant(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call(...) end
  return false
end
local function occupant()
  local value = tolerant('GETRANGE', KEYS[1], 0, CUT)
  if not value then return '', redis.call('TYPE', KEYS[1]).ok end
  if value == '' and redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  if #value > CUT then return string.sub(value, 1, CUT), 'string ' .. redis.call('STRLEN', KEYS[1]) end
  return value
end
local function is_holder(value, id)
  return value and string.sub(value, 1, 32) == id and (#value == 32 or string.sub(value, 33, 33) == ' ')
end
local function fence()
  return tonumber(tolerant('GET', KEYS[2])) or 0
end
local function living()
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 0 end
  local time = redis.pcall('TIME')
  if time.err then return waiting end
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting
end
local SLACK = 1000
local value, kind = occupant()
if not value then return {'absent'} end
if not is_holder(value, ARGV[1]) then return {'taken', value, kind or ''} end
local left, ttl, told = redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = math.max(ttl, told)
if left > longest + SLACK then left = longest end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, ttl)))
redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
redis.call('GET', KEYS[1])
return {'renewed', living()}
