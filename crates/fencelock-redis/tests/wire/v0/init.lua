local marker = redis.call('HMGET', KEYS[1], 'epoch', 'until', 'span', 'quorum')
local epoch, till, span, quorum = marker[1], tonumber(marker[2]), tonumber(marker[3]) or 0, marker[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)
local wanted = math.max(span, tonumber(ARGV[2]))
local found = 'unchanged'
if epoch ~= ARGV[1] or not till then
  found = 'new'
elseif quorum ~= ARGV[3] then
  found = 'changed'
end
if ARGV[5] == 'trust' then
  till = 0
elseif found == 'new' or ARGV[6] == 'join' then
  till = now + wanted
elseif till > 0 then
  till = till + wanted - span
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'until', string.format('%.0f', till), 'span', string.format('%.0f', wanted),
  'quorum', ARGV[3], 'nodes', ARGV[4])
return {found, math.max(0, till - now)}
