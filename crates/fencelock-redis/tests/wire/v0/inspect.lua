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
local function living()
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 0 end
  local time = redis.pcall('TIME')
  if time.err then return waiting end
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting
end
local value, kind = occupant()
if not value then return refusal(ARGV[1], ARGV[2]) or false end
local last = fence()
return {value, kind or '', redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', living()}
