-- Checks the marker of this run of the server. If the marker is missing or belongs to another run, the server may have
-- lost grants, so it must not grant until every lease that it may have lost has expired.
--
-- KEYS  1 marker    hash, without a TTL: "version" of the protocol
--                                        "epoch" the run id of the server that wrote it
--                                        "until" when its quarantine ends, ms by the server's clock, or 0
--                                        "span" the length of that quarantine, ms
--                                        "quorum" "<longest ttl, ms> <id of the set of nodes>"
--                                        "nodes" the names of these nodes, for people
-- ARGV  1 run id of this connection      2 length of a quarantine, ms      3 quorum      4 nodes
--       5 "trust" or "wait"
-- Reply {remaining quarantine in ms, quorum, nodes}: the current content of the marker
--       {"version", version} if the version of the marker is not supported
--
-- The script does not change the marker of another set, even after a restart: the quarantine could be shorter than that
-- set requires. Only init.lua changes the set. Neither script changes a marker of another version.

local marker = redis.call('HMGET', KEYS[1], 'epoch', 'until', 'quorum', 'nodes', 'version')
if marker[5] and marker[5] ~= 'WIRE' then return {'version', marker[5]} end
local epoch, till, quorum, nodes = marker[1], tonumber(marker[2]), marker[3], marker[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)

if (epoch ~= ARGV[1] or not till) and (not quorum or quorum == ARGV[3]) then
  quorum, nodes = ARGV[3], ARGV[4]
  till = ARGV[5] == 'trust' and 0 or now + ARGV[2]
  redis.call('HSET', KEYS[1], 'version', 'WIRE', 'epoch', ARGV[1], 'until', string.format('%.0f', till), 'span', ARGV[2],
    'quorum', quorum, 'nodes', nodes)
end
return {math.max(0, (till or 0) - now), quorum or '', nodes or ''}
