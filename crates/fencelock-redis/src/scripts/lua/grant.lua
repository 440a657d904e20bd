-- Adds and removes the holds of a lock that several clients hold together.

-- The fields that all versions have, and the rest. Later versions add fields after the first tab; they request less than an
-- exclusive lock, so an exclusive grant is correct for them as well.
local COMMON = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)(.*)'
local EXCLUSIVE = {mode = 'x'}

local GRANTS
local function grants()
  if GRANTS then return GRANTS end

  -- The mode that an entry requests, from its suffix. An unknown suffix requests less than an exclusive lock.
  local function mode_of(suffix)
    if suffix == '\tWIRE r 1 0' then return {mode = 'r', weight = 1, limit = 0} end
    local weight, limit = string.match(suffix, '^\tWIRE s ([1-9]%d*) ([1-9]%d*)$')
    if not weight or tonumber(weight) > tonumber(limit) or tonumber(limit) > 1000000 then return EXCLUSIVE end
    return {mode = 's', weight = tonumber(weight), limit = tonumber(limit)}
  end

  -- Whether a claim can never be granted beside a lock or a waiter that is not exclusive: all clients must use a key in the same
  -- mode, with the same limit. The limit of a shared lock is 0.
  local function conflicts(present, claim)
    return claim.mode ~= 'x' and present.mode ~= 'x' and claim.limit ~= present.limit
  end

  -- What a waiter requests; nil if it is not in the queue, or if its entry cannot be read. Also the entry without its suffix.
  local function asks(id)
    local entry = tolerant('HGET', KEYS[4], id) or ''
    local _, _, _, value, suffix = string.match(entry, COMMON)
    if not is_holder(value, id) then return nil end
    return mode_of(suffix), string.sub(entry, 1, #entry - #suffix)
  end

  -- What the last waiter requests; nil if there is none, or if it is dead.
  local function last_waiter(now)
    local id = (tolerant('ZREVRANGE', KEYS[3], 0, 0) or {})[1]
    local alive = id and tonumber(tolerant('ZSCORE', KEYS[5], id))
    if not alive or alive * 1000 <= now then return nil end
    return (asks(id))
  end

  -- A waiter of a resized semaphore waits for permits with the new limit, although its client claims them with the old one.
  local function by_entry(claim)
    local written = claim.mode == 's' and asks(claim.id)
    if written and written.mode == 's' and claim.weight <= written.limit then claim.limit = written.limit end
  end

  -- Changes the limit that a waiter of a semaphore requests. Returns false if its weight exceeds the limit.
  local function take_over(id, before, limit)
    local claim, entry = asks(id)
    if not claim or claim.mode ~= 's' or claim.limit ~= before then return true end
    if claim.weight > limit then return false end
    redis.call('HSET', KEYS[4], id, string.format('%s\tWIRE s %d %d', entry, claim.weight, limit))
    return true
  end

  -- The permits in use; the limit if the number is unknown.
  local function used(shared)
    shared.used = shared.used or tonumber(tolerant('HGET', KEYS[7], '#used')) or shared.limit
    return shared.used
  end

  local function fits(shared, claim)
    -- The limit of a shared lock is 0, and an exclusive claim has none.
    if shared.limit ~= claim.limit then return false end
    return claim.mode == 'r' or used(shared) + claim.weight <= shared.limit
  end

  local function write(claim, last)
    local entry = string.format('%d %s %s', claim.weight or 1, last, string.sub(claim.value, 34))
    if tolerant('HSET', KEYS[7], claim.id, entry) then return end
    redis.call('UNLINK', KEYS[7])
    redis.call('HSET', KEYS[7], claim.id, entry)
  end

  -- The token of a hold. If its entry is missing, a new one is written, with a new token.
  local function token(claim, client_time)
    local last = string.match(tolerant('HGET', KEYS[7], claim.id) or '', '^[1-9]%d* ([1-9]%d*) ')
    if last then return last end
    last = next_block(client_time, 1, false)
    write(claim, last)
    return last
  end

  -- Adds a hold with this lease; creates the lock if it is free. Returns the lock.
  local function add(shared, claim, last, lease, now)
    local used_before = shared and shared.mode == 's' and used(shared) or 0
    if not shared then
      local value = string.format('fencelock:WIRE:%s:%d:%s', claim.mode, claim.limit, last)
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

  -- Removes at most CAP ended holds. Returns the lock, or nil if it is free now; and whether more holds have ended.
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

