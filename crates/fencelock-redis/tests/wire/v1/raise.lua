if not KEYS[5] then
  local name = string.sub(KEYS[2], 1, -6)    -- without "fence"
  KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8] = name .. 'waiters', name .. 'alive', name .. 'holds', name .. 'held', KEYS[4]
end
local CAP = 32               -- maximum number of waiters that one call skips, and of ended holds that it removes
local FENCE_TTL = 86400000   -- 24 h without use. Tokens follow the time, so they still increase after the fence has expired.
local function tolerant(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call(...) end
  return false
end
local function occupant()
  local CUT = 300            -- maximum number of bytes that are read: no lock is longer
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
local function shared_lock(value, kind)
  if not value or kind or string.find(value, 'fencelock:1:', 1, true) ~= 1 then return nil end
  if string.find(value, '^fencelock:1:r:0:[1-9]%d*$') then return {value = value, mode = 'r', limit = 0} end
  local limit = tonumber(string.match(value, '^fencelock:1:s:([1-9]%d*):[1-9]%d*$'))
  return limit and limit <= 1000000 and {value = value, mode = 's', limit = limit} or nil
end
local function refusal(epoch, quorum)
  if not KEYS[8] or not quorum or quorum == '' then return nil end
  local marker = redis.call('HMGET', KEYS[8], 'epoch', 'until', 'quorum', 'version')
  if marker[4] and marker[4] ~= '1' then return {'version', marker[4]} end
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', redis.call('HGET', KEYS[8], 'nodes') or ''} end
  if till == 0 then return nil end
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end
local HOLDS
local function holds()
  if HOLDS then return HOLDS end
  local SHARE = 8            -- the lock outlasts its last hold by this fraction of a lease, so that few renewals write to it
  local KEEP = 60000         -- how much longer the side keys live than the lock, ms
  local function rest(id, now)
    local till = tonumber(tolerant('ZSCORE', KEYS[6], id))
    return till and till >= now and till - now or nil
  end
  local function outlast(left)
    if redis.call('PTTL', KEYS[1]) > left then return end
    left = left + math.floor(left / SHARE)
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', left + KEEP))
    redis.call('PEXPIRE', KEYS[7], string.format('%.0f', left + KEEP))
  end
  local function prolong(id, left, now)
    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', math.max(redis.call('PTTL', KEYS[6]), left + KEEP)))
    redis.call('ZADD', KEYS[6], string.format('%.0f', now + left), id)
    outlast(left)
  end
  local function described(shared, now)
    local SHOWN, CUT = 20, 300 -- holds, and bytes of an entry: none of ours is longer
    local from = string.format('%.0f', now)
    local found = tolerant('ZRANGEBYSCORE', KEYS[6], from, '+inf', 'WITHSCORES', 'LIMIT', 0, SHOWN) or {}
    if not found[1] then return nil end
    local lines = {shared.value .. ' ' .. redis.call('ZCOUNT', KEYS[6], from, '+inf')}
    for i = 1, #found, 2 do
      local entry = string.sub(tolerant('HGET', KEYS[7], found[i]) or '', 1, CUT)
      lines[#lines + 1] = string.format('%s %.0f %s', found[i], found[i + 1] - now, entry)
    end
    return table.concat(lines, '\n'), 'shared', found[2] - now
  end
  HOLDS = {rest = rest, outlast = outlast, prolong = prolong, described = described}
  return HOLDS
end
if refusal(ARGV[3], ARGV[4]) then return 0 end
local value, kind = occupant()
local shared, granted, weight, owner = shared_lock(value, kind)
if is_holder(value, ARGV[1]) then
  granted = fence()          -- the last grant of an exclusive lock is that of its holder
elseif shared then
  local time = redis.call('TIME')
  if holds().rest(ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000)) then
    local entry = tolerant('HGET', KEYS[7], ARGV[1]) or ''
    weight, granted, owner = string.match(entry, '^([1-9]%d*) ([1-9]%d*) (.*)')
  end
end
if not granted or tonumber(granted) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], string.format('%.0f', math.max(fence(), tonumber(ARGV[2]))), 'PX', FENCE_TTL)
if weight then redis.call('HSET', KEYS[7], ARGV[1], weight .. ' ' .. ARGV[2] .. ' ' .. owner) end
return 1
