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
local function clock(client_time)
  local time = redis.pcall('TIME')
  if time.err then return tonumber(client_time), false end
  return time[1] * 1000000 + time[2], true
end
local function next_block(client_time, wanted, proposed, now, exact)
  local CLAMP = 1000000      -- on a node of a quorum, the maximum distance of a proposal from the server's time, 1 s
  local FENCE_MAX = 9007199254740991
  if not now then now, exact = clock(client_time) end
  wanted = tonumber(wanted)
  local previous = fence()
  local last, count = math.max(now, previous + 1), 1
  if proposed then
    last = tonumber(client_time)
    if exact then last = math.max(now - CLAMP, math.min(last, now + CLAMP)) end
    local room = math.max(1, math.min(now + CLAMP, FENCE_MAX) - previous)
    if wanted <= room then
      count = math.max(1, wanted)
    else
      while count * 2 <= room do count = count * 2 end
    end
    last = math.max(last, previous + count)
    count = math.min(count, last - (now - CLAMP) + 1)
  elseif previous > 0 then
    count = math.min(wanted, last - previous)
  end
  if last > FENCE_MAX then
    redis.call('PEXPIRE', KEYS[2], FENCE_TTL)
    error('ERR fencelock: the fencing token of this key has reached 2^53', 0)
  end
  last = string.format('%d', last)
  redis.call('SET', KEYS[2], last, 'PX', FENCE_TTL)
  return last, count
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
local COMMON = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)(.*)'
local EXCLUSIVE = {mode = 'x'}
local GRANTS
local function grants()
  if GRANTS then return GRANTS end
  local function mode_of(suffix)
    if suffix == '\t1 r 1 0' then return {mode = 'r', weight = 1, limit = 0} end
    local weight, limit = string.match(suffix, '^\t1 s ([1-9]%d*) ([1-9]%d*)$')
    if not weight or tonumber(weight) > tonumber(limit) or tonumber(limit) > 1000000 then return EXCLUSIVE end
    return {mode = 's', weight = tonumber(weight), limit = tonumber(limit)}
  end
  local function conflicts(present, claim)
    return claim.mode ~= 'x' and present.mode ~= 'x' and claim.limit ~= present.limit
  end
  local function asks(id)
    local entry = tolerant('HGET', KEYS[4], id) or ''
    local _, _, _, value, suffix = string.match(entry, COMMON)
    if not is_holder(value, id) then return nil end
    return mode_of(suffix), string.sub(entry, 1, #entry - #suffix)
  end
  local function last_waiter(now)
    local id = (tolerant('ZREVRANGE', KEYS[3], 0, 0) or {})[1]
    local alive = id and tonumber(tolerant('ZSCORE', KEYS[5], id))
    if not alive or alive * 1000 <= now then return nil end
    return (asks(id))
  end
  local function by_entry(claim)
    local written = claim.mode == 's' and asks(claim.id)
    if written and written.mode == 's' and claim.weight <= written.limit then claim.limit = written.limit end
  end
  local function take_over(id, before, limit)
    local claim, entry = asks(id)
    if not claim or claim.mode ~= 's' or claim.limit ~= before then return true end
    if claim.weight > limit then return false end
    redis.call('HSET', KEYS[4], id, string.format('%s\t1 s %d %d', entry, claim.weight, limit))
    return true
  end
  local function used(shared)
    shared.used = shared.used or tonumber(tolerant('HGET', KEYS[7], '#used')) or shared.limit
    return shared.used
  end
  local function fits(shared, claim)
    if shared.limit ~= claim.limit then return false end
    return claim.mode == 'r' or used(shared) + claim.weight <= shared.limit
  end
  local function write(claim, last)
    local entry = string.format('%d %s %s', claim.weight or 1, last, string.sub(claim.value, 34))
    if tolerant('HSET', KEYS[7], claim.id, entry) then return end
    redis.call('UNLINK', KEYS[7])
    redis.call('HSET', KEYS[7], claim.id, entry)
  end
  local function token(claim, client_time)
    local last = string.match(tolerant('HGET', KEYS[7], claim.id) or '', '^[1-9]%d* ([1-9]%d*) ')
    if last then return last end
    last = next_block(client_time, 1, false)
    write(claim, last)
    return last
  end
  local function add(shared, claim, last, lease, now)
    local used_before = shared and shared.mode == 's' and used(shared) or 0
    if not shared then
      local value = string.format('fencelock:1:%s:%d:%s', claim.mode, claim.limit, last)
      shared = {value = value, mode = claim.mode, limit = claim.limit}
      redis.call('UNLINK', KEYS[6], KEYS[7])
      redis.call('SET', KEYS[1], value, 'PX', lease)
    end
    redis.call('ZADD', KEYS[6], string.format('%.0f', now + lease), claim.id)
    write(claim, last)
    if claim.mode == 's' then
      shared.used = used_before + claim.weight
      redis.call('HSET', KEYS[7], '#used', string.format('%d', shared.used))
    end
    holds().outlast(tonumber(lease))
    return shared
  end
  local function remove(shared, ids)
    local freed = 0
    for _, id in ipairs(ids) do
      freed = freed + (tonumber(string.match(tolerant('HGET', KEYS[7], id) or '', '^%d+')) or 0)
    end
    redis.call('ZREM', KEYS[6], unpack(ids))
    tolerant('HDEL', KEYS[7], unpack(ids))
    local before = shared.mode == 's' and tonumber(tolerant('HGET', KEYS[7], '#used'))
    if not before then return end
    shared.used = before - freed
    redis.call('HSET', KEYS[7], '#used', string.format('%d', shared.used))
  end
  local function bury(shared, now)
    local last = tolerant('ZREVRANGE', KEYS[6], 0, 0, 'WITHSCORES')
    if not last or not last[2] or tonumber(last[2]) < now then
      redis.call('UNLINK', KEYS[1], KEYS[6], KEYS[7])
      return nil, false
    end
    local ended = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', string.format('(%.0f', now), 'LIMIT', 0, CAP)
    if #ended > 0 then remove(shared, ended) end
    return shared, #ended == CAP
  end
  GRANTS = {
    mode_of = mode_of, conflicts = conflicts, last_waiter = last_waiter,
    by_entry = by_entry, take_over = take_over, used = used, fits = fits, token = token, add = add, remove = remove, bury = bury,
  }
  return GRANTS
end
local passed = 0
local function leave(id)
  if tolerant('ZREM', KEYS[3], id) ~= 1 then return end
  tolerant('HDEL', KEYS[4], id)
  tolerant('ZREM', KEYS[5], id)
end
local function notify(channel, message, run_id)
  local client, node, slot = string.match(channel, '^(.*:(%w+)):({%d+})$')
  local readers = redis.pcall(slot and 'SPUBLISH' or 'PUBLISH', channel, message)
  if string.sub(channel, -8) == ':cluster' or slot and node ~= string.sub(run_id, 1, 8) then return 1 end
  if slot and readers == 0 then
    local there = redis.pcall('PUBSUB', 'NUMSUB', client)
    return there.err and 1 or there[2]
  end
  return readers
end
local function advance(mine, client_time, claim_ttl, run_id, shared)
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody', nil, shared end
  local now, exact = clock(client_time)
  local SHOWN = 16           -- bytes of an unreadable entry that are reported
  local kept, unread = 0
  while passed < CAP do
    passed = passed + 1
    local id = redis.call('ZRANGE', KEYS[3], kept, kept)[1]
    if not id then return 'nobody', unread, shared end
    local is_mine = mine and id == mine.id
    local alive, entry, ttl, wanted, channel, value, suffix = tonumber(tolerant('ZSCORE', KEYS[5], id))
    if alive and alive * 1000 > now then
      entry = tolerant('HGET', KEYS[4], id) or ''
      ttl, wanted, channel, value, suffix = string.match(entry, COMMON)
    end
    if entry and not is_mine and not is_holder(value, id) then
      kept = kept + 1
      unread = unread or {id, #entry, string.sub(entry, 1, SHOWN)}
    else
      local claim = is_mine and mine or entry and EXCLUSIVE
      if claim == EXCLUSIVE and exact and suffix ~= '' and suffix ~= '\t1' then claim = grants().mode_of(suffix) end
      if claim and shared and not grants().fits(shared, claim) then return 'blocked', unread, shared end
      leave(id)
      if is_mine then return 'mine', unread, shared end
      if entry then
        local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
        local last, count = next_block(client_time, wanted, false, now, exact)
        local readers = 1
        if channel ~= '-' then
          local message = '1 ' .. run_id .. ' ' .. id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. '\t' .. KEYS[1]
          readers = notify(channel, message, run_id)
        end
        if type(readers) == 'table' or readers > 0 then
          if claim.mode == 'x' then
            redis.call('SET', KEYS[1], value, 'PX', lease)
            return 'given', unread
          end
          claim.id, claim.value = id, value
          shared = grants().add(shared, claim, last, lease, math.floor(now / 1000))
        end
      end
    end
  end
  if kept == CAP then return 'unreadable', unread, shared end
  return redis.call('ZCARD', KEYS[3]) > kept and 'more' or 'nobody', unread, shared
end
