local wanted = not ARGV[5] and tonumber(ARGV[3])
if wanted and redis.pcall('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local time = redis.pcall('TIME')
  local now = not time.err and time[1] * 1000000 + time[2]
  local marker, open = KEYS[8] or not KEYS[5] and KEYS[4], now and now <= 9007199254740991
  if marker and open then
    local run_id, quorum = string.match(ARGV[4], '^([^\t]*)\t([^\t]*)')
    local found = quorum ~= '' and redis.pcall('HMGET', marker, 'epoch', 'until', 'quorum', 'version')
    local till = found and not found.err and tonumber(found[2])
    open = not found or till and till <= math.floor(now / 1000) and found[1] == run_id and found[3] == quorum
      and (not found[4] or found[4] == '1')
  end
  if open then
    local last = string.format('%d', now)
    local text = redis.pcall('SET', KEYS[2], last, 'PX', '86400000', 'GET')
    local previous = tonumber(text or 0)
    if previous and previous >= 0 and previous + 1 <= now then
      redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'GET')
      local count = previous == 0 and 1 or math.min(wanted, now - previous)
      if count == wanted then return now end
      return {'granted', last, count}
    end
    if type(text) == 'string' then redis.call('SET', KEYS[2], text, 'PX', '86400000') end
  end
end
--@granting
local function purge(me, now_ms)
  local dead = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, CAP)
  for i = #dead, 1, -1 do
    if dead[i] == me then table.remove(dead, i) end
  end
  if #dead == 0 then return 0 end
  redis.call('ZREM', KEYS[5], unpack(dead))
  redis.call('HDEL', KEYS[4], unpack(dead))
  redis.call('ZREM', KEYS[3], unpack(dead))
  return #dead
end
local ARGV = ARGV[5] and ARGV or (function(value, ttl, wanted, rest)
  local run_id, quorum, intent, client_time, life, claim_ttl, channel =
    string.match(rest, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  return {intent, string.sub(value, 1, 32), value, ttl, client_time, life, claim_ttl, channel, wanted, 'own', run_id, quorum}
end)(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
local refused = refusal(ARGV[11], ARGV[12])
if refused then return refused end
local intent, id, value_of_mine, ttl, client_time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local proposed, mode = string.match(ARGV[10], '^(proposed) ?(.*)')
mode = mode or ARGV[10]
local value, kind = occupant()
local shared = shared_lock(value, kind)
local mine = {mode = 'x'}
if mode ~= 'own' and mode ~= '' then mine = grants().mode_of('\t1 ' .. mode) end
mine.id, mine.value = id, value_of_mine
if mine.mode == 's' then grants().by_entry(mine) end
local unread, now, now_ms, exact
if is_holder(value, id) then
  if intent ~= 'poll' then return {'yours'} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  local last = fence()
  return {'granted', last > 0 and string.format('%.0f', last) or (next_block(client_time, 1, proposed)), 1}
end
if shared or mine.mode ~= 'x' then
  now, exact = clock(client_time)
  now_ms = math.floor(now / 1000)
  if not exact then
    if mine.mode ~= 'x' then return {'noclock'} end
    shared = nil             -- busy, as with the value of another program
  end
end
if shared then
  local rest, more = holds().rest(id, now_ms)
  if rest then
    if intent ~= 'poll' then return {'yours'} end
    if rest < tonumber(ttl) then holds().prolong(id, tonumber(ttl), now_ms) end
    return {'granted', grants().token(mine, client_time), 1}
  end
  shared, more = grants().bury(shared, now_ms)
  if more then return {'more'} end
  if not shared then value = nil end
end
if not value or shared then
  local turn
  turn, unread, shared = advance(mine, client_time, ARGV[7], ARGV[11], shared)
  if shared and grants().conflicts(shared, mine) then
    leave(id)
    if turn == 'blocked' then advance(nil, client_time, ARGV[7], ARGV[11], shared) end
    return {'class', shared.mode, shared.limit, unread}
  end
  if turn == 'more' or turn == 'unreadable' then return {turn, unread} end
  if turn == 'given' then
    value = redis.call('GET', KEYS[1])
  elseif turn ~= 'blocked' and (not shared or grants().fits(shared, mine)) then
    if turn ~= 'mine' and intent == 'poll' then return {'gone', unread} end
    local last, count = next_block(client_time, ARGV[9], proposed)
    if mine.mode == 'x' then
      redis.call('SET', KEYS[1], mine.value, 'PX', ttl)
    else
      shared = grants().add(shared, mine, last, ttl, now_ms)
      if turn == 'mine' then
        local _, found = advance(nil, client_time, ARGV[7], ARGV[11], shared)
        unread = unread or found
      end
    end
    return {'granted', last, count, unread}
  end
end
local LINE_TTL = 3600000     -- 1 h: much longer than the life of a waiter that does not poll.
if not now and (shared or intent ~= 'try') then
  now, exact = clock(client_time)
  now_ms = math.floor(now / 1000)
end
if mine.mode ~= 'x' and intent ~= 'poll' and not tolerant('ZSCORE', KEYS[3], id) then
  local other = grants().last_waiter(now)
  if other and grants().conflicts(other, mine) then return {'class', other.mode, other.limit, unread} end
end
local last, rest = string.format('%.0f', fence())
if shared then value, kind, rest = holds().described(shared, now_ms) end
if intent == 'try' then return {'busy', last, rest or redis.call('PTTL', KEYS[1]), value, kind or '', unread} end
local ahead = redis.call('ZRANK', KEYS[3], id)
if not ahead and intent == 'poll' then return {'gone', unread} end
if purge(id, now_ms) > 0 and ahead then ahead = redis.call('ZRANK', KEYS[3], id) end
if not ahead then
  local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  redis.call('ZADD', KEYS[3], last[2] and last[2] + 1 or 1, id)
  ahead = redis.call('ZCARD', KEYS[3]) - 1
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms + ARGV[6]), id)
local suffix = mine.mode == 'x' and '\t1' or string.format('\t1 %s %d %d', mine.mode, mine.weight, mine.limit)
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s%s', ttl, ARGV[9], ARGV[8], mine.value, suffix))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, rest or redis.call('PTTL', KEYS[1]), value, kind or '', unread}
