-- Registers this server as a member of a set of nodes.
--
-- KEYS  1 marker, as in handshake.lua
-- ARGV  as in handshake.lua; "trust" asserts that the server has lost no grants
--       6 "join" if other servers of the set come from a set without this one, else "stay"
-- Reply {"new" | "changed" | "unchanged", remaining quarantine in ms}
--       {"version", version} if the version of the marker is not supported
--
-- A running quarantine continues: if the new longest TTL is longer, the script extends it, counted from its start. A new
-- quarantine is at least as long as the old set required. A server that joins the set always starts a new quarantine: the
-- server that it replaces may have granted until now.

local marker = redis.call('HMGET', KEYS[1], 'epoch', 'until', 'span', 'quorum', 'version')
if marker[5] and marker[5] ~= 'WIRE' then return {'version', marker[5]} end
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
redis.call('HSET', KEYS[1], 'version', 'WIRE', 'epoch', ARGV[1], 'until', string.format('%.0f', till), 'span', string.format('%.0f', wanted),
  'quorum', ARGV[3], 'nodes', ARGV[4])
return {found, math.max(0, till - now)}
