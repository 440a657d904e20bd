-- The operator says that this server belongs to this set of nodes from now on.
--
-- KEYS  1 marker, as in handshake.lua
-- ARGV  as in handshake.lua; "trust" says that it has forgotten nothing
--       6 "join" if other servers of the set come from a set that this one was not in, else "stay"
-- Reply {"new" | "changed" | "unchanged", rest of the quarantine in ms}
--
-- What is known of a forgetting stays known: a quarantine that was begun under a shorter longest TTL is made as long as the
-- new one asks for, counted from its beginning, and one that begins now is no shorter than the old set would have asked for.
-- Whoever joins waits from now on, whatever it waited before: the server that it replaces may have granted until now.

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
