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
local LINE_TTL = 3600000     -- 1 h. Far beyond the life of a waiter that says nothing.
local refused = refusal(ARGV[11], ARGV[12])
if refused then return refused end
local intent, id, mine, ttl, client_time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local proposed = ARGV[10] == 'proposed'
local value, kind = occupant()
if is_holder(value, id) then
  if intent ~= 'poll' then return {'yours'} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  local last = fence()
  return {'granted', last > 0 and string.format('%.0f', last) or (next_block(client_time, 1, proposed)), 1}
end
if not value then
  local turn = advance(id, client_time, ARGV[7], ARGV[11])
  if turn == 'given' then
    value = redis.call('GET', KEYS[1])
  else
    if turn == 'more' then return {'more'} end
    if turn ~= 'mine' and intent == 'poll' then return {'gone'} end
    local last, count = next_block(client_time, ARGV[9], proposed)
    redis.call('SET', KEYS[1], mine, 'PX', ttl)
    return {'granted', last, count}
  end
end
local last = string.format('%.0f', fence())
if intent == 'try' then return {'busy', last, redis.call('PTTL', KEYS[1]), value, kind or ''} end
local ahead = redis.call('ZRANK', KEYS[3], id)
if not ahead and intent == 'poll' then return {'gone'} end
local now, exact = clock(client_time)
local now_ms = math.floor(now / 1000)
if purge(id, now_ms) > 0 and ahead then ahead = redis.call('ZRANK', KEYS[3], id) end
if not ahead then
  local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  redis.call('ZADD', KEYS[3], last[2] and last[2] + 1 or 1, id)
  ahead = redis.call('ZCARD', KEYS[3]) - 1
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms + ARGV[6]), id)
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s', ttl, ARGV[9], ARGV[8], mine))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, redis.call('PTTL', KEYS[1]), value, kind or ''}
