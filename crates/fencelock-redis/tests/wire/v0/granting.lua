local FENCE_TTL = 86400000   -- 24 h idle. The fence follows the time, so forgetting it then cannot lower it.
local CUT = 300              -- bytes of a value that are read: no lock is longer
local function tolerant(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call(...) end
  return false
end
local function occupant()
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
local function refusal(epoch, quorum)
  if not KEYS[6] then return nil end
  local marker = redis.call('HMGET', KEYS[6], 'epoch', 'until', 'quorum', 'nodes')
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', marker[4] or ''} end
  if till == 0 then return nil end
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end
local CLAMP = 1000000        -- on a node of a quorum, a proposal may lie 1 s off the server's clock
local FENCE_MAX = 9007199254740991
local function clock(client_time)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(client_time), false end
  return time[1] * 1000000 + time[2], true
end
local function next_block(client_time, wanted, proposed, now, exact)
  if not now then now, exact = clock(client_time) end
  wanted = tonumber(wanted)
  local previous = fence()
  local last, count = math.max(now, previous + 1), 1
  if proposed then
    last = tonumber(client_time)
    if exact then last = math.max(now - CLAMP, math.min(last, now + CLAMP)) end
    count = math.max(1, math.min(wanted, math.min(now + CLAMP, FENCE_MAX) - previous))
    last = math.max(last, previous + count)
    count = math.min(count, last - (now - CLAMP) + 1)
  elseif previous > 0 then
    count = math.min(wanted, last - previous)
  end
  if last > FENCE_MAX then error('ERR fencelock: the fencing token of this key has reached 2^53', 0) end
  last = string.format('%d', last)
  redis.call('SET', KEYS[2], last, 'PX', FENCE_TTL)
  return last, count
end
local CAP = 32               -- waiters that one call passes over
local function advance(me, client_time, claim_ttl, run_id)
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody' end
  local now, exact = clock(client_time)
  for _ = 1, CAP do
    local id = redis.call('ZPOPMIN', KEYS[3])[1]
    if not id then return 'nobody' end
    local entry, alive = tolerant('HGET', KEYS[4], id), tonumber(tolerant('ZSCORE', KEYS[5], id))
    tolerant('HDEL', KEYS[4], id)
    tolerant('ZREM', KEYS[5], id)
    if id == me then return 'mine' end
    local ttl, wanted, channel, value = string.match(entry or '', '^(%d+) (%d+) (%S+) (.*)$')
    if ttl and alive and alive * 1000 > now then
      local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
      local last, count = next_block(client_time, wanted, false, now, exact)
      local readers = 1
      if channel ~= '-' then
        local message = id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. ' ' .. run_id .. ' ' .. KEYS[1]
        readers = redis.pcall('PUBLISH', channel, message)
      end
      if type(readers) == 'table' or readers > 0 then
        redis.call('SET', KEYS[1], value, 'PX', lease)
        return 'given'
      end
    end
  end
  return redis.call('EXISTS', KEYS[3]) == 1 and 'more' or 'nobody'
end
