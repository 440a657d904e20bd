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
local function refusal(epoch, quorum)
  if not KEYS[3] or not quorum or quorum == '' then return nil end
  local marker = redis.call('HMGET', KEYS[3], 'epoch', 'until', 'quorum', 'version')
  if marker[4] and marker[4] ~= '1' then return {'version', marker[4]} end
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', redis.call('HGET', KEYS[3], 'nodes') or ''} end
  if till == 0 then return nil end
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end
local refused = refusal(ARGV[1], ARGV[2])
if refused then return refused end
local text, kind = completion()
return {text, kind or '', string.format('%.0f', now_us())}
