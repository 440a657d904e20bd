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
local function refusal(epoch, quorum)
  if not KEYS[6] then return nil end
  local marker = redis.call('HMGET', KEYS[6], 'epoch', 'until', 'quorum', 'nodes')
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', marker[4] or ''} end
  if till == 0 then return nil end
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end
if refusal(ARGV[3], ARGV[4]) then return 0 end
local value = occupant()
if not is_holder(value, ARGV[1]) then return 0 end
if fence() > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
return 1
