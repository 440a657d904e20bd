local LONGEST = 300          -- bytes of a completion
local function completion()
  local text = redis.pcall('GETRANGE', KEYS[2], 0, LONGEST)
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE', 1, true) then redis.call('GETRANGE', KEYS[2], 0, LONGEST) end
    return '', redis.call('TYPE', KEYS[2]).ok
  end
  if text == '' and redis.call('EXISTS', KEYS[2]) == 0 then return '' end
  local till, token = string.match(text, '^1 ([1-9]%d*) ([1-9]%d*) ')
  if #text > LONGEST or not till or #till > 16 or #token > 16 then return string.sub(text, 1, 60), 'string' end
  return text
end
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
if ARGV[1] ~= '-' then
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 32)
  if type(value) ~= 'string' or string.sub(value, 1, 32) ~= ARGV[1] then return {'absent'} end
  if #value == 33 and string.sub(value, 33) ~= ' ' then return {'absent'} end
end
local text, kind = completion()
if kind then return {'unread', kind, text} end
local till, token = tonumber(ARGV[3]), tonumber(ARGV[4])
local stored_till, stored_token = string.match(text, '^1 (%d+) (%d+) ')
if stored_till then
  stored_till, stored_token = tonumber(stored_till), tonumber(stored_token)
  if stored_till > till or (stored_till == till and stored_token >= token) then return {'written'} end
end
local left = math.ceil((till - now_us()) / 1000) + ARGV[5]
if left > 0 then redis.call('SET', KEYS[2], ARGV[2], 'PX', string.format('%.0f', left)) end
return {'written'}
