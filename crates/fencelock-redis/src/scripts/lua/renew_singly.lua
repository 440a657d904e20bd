-- Renews a held lock, or the life of a waiter, with a single key of the lock, while its slot is moved to another node of a cluster
-- and its keys are on both. It only prolongs: a loss is detected after the move.
--
-- KEYS  1 the lock, or one of its side keys held, holds and alive: see lock.lua
-- ARGV  1 which of them      2 holder id      3 ttl, or life of a waiter between two polls, ms
-- Reply "renewed"
--       "shared" for the lock if several clients can hold it: then call again for held and holds, in this order, so that the lock
--       and its side keys exist until the hold ends
--       "other" if this key does not show a hold of this holder

local KEEP = 60000           -- as in shared.lua
local which, id, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function outlast(left)
  if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left)) end
end

if which == 'lock' then
  local value = redis.call('GETRANGE', KEYS[1], 0, 32)
  if value == id .. ' ' or value == id then
    -- Written even if the TTL does not change: replicas confirm the last write.
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), ttl)))
    return 'renewed'
  end
  if not string.find(value, '^fencelock:WIRE:[rs]:') then return 'other' end
  outlast(ttl + math.floor(ttl / 8))
  return 'shared'
end
if which == 'held' then
  if redis.call('HEXISTS', KEYS[1], id) == 0 then return 'other' end
  outlast(ttl + KEEP)
  return 'renewed'
end
local till, time = tonumber(redis.call('ZSCORE', KEYS[1], id) or nil), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A poll also revives a waiter that is still in the queue.
if not till or till < now and which ~= 'alive' then return 'other' end
if which == 'holds' then outlast(ttl + KEEP) end
redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(till, now + ttl)), id)
return 'renewed'
