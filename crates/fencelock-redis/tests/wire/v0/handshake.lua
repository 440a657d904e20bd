-- A client meets a server: is it still the one that the marker tells of? If not it may have forgotten what it granted, and
-- must not grant before every lease it may have forgotten is over. Also if it has no marker, for then it forgot that.
--
-- KEYS  1 marker    hash, without a TTL: "epoch" the run id of the server that promised to remember
--                                        "until" when its quarantine ends, ms by the server's clock, or 0
--                                        "span" how long that was to last, ms
--                                        "quorum" "<longest ttl, ms> <which set of nodes>"
--                                        "nodes" that set, for people
-- ARGV  1 run id, of this very connection      2 length of a quarantine, ms      3 quorum      4 nodes
--       5 "trust" or "wait"
-- Reply {rest of the quarantine in ms, quorum, nodes}: what the marker says now
--
-- A marker of another set is left as it is, also by a server with another run id: a shorter quarantine than that set needs
-- would be begun in its name. Only init changes a set.

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
