local marker = redis.call('HMGET', KEYS[1], 'epoch', 'until', 'quorum', 'nodes')
local epoch, till, quorum, nodes = marker[1], tonumber(marker[2]), marker[3], marker[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)
if (epoch ~= ARGV[1] or not till) and (not quorum or quorum == ARGV[3]) then
  quorum, nodes = ARGV[3], ARGV[4]
  till = ARGV[5] == 'trust' and 0 or now + ARGV[2]
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'until', string.format('%.0f', till), 'span', ARGV[2],
    'quorum', quorum, 'nodes', nodes)
end
return {math.max(0, (till or 0) - now), quorum or '', nodes or ''}
