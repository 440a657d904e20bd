-- The end of acquire.lua, for a claim that was not granted: the reply "busy", or a position in the queue.

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
  -- A ticket is a thousand times the time of arrival, in ms, but greater than the last one.
  local ticket = math.max(math.floor((last[2] or 0) / 1000) + 1, now_ms) * 1000
  redis.call('ZADD', KEYS[3], string.format('%.0f', ticket), id)
  ahead = redis.call('ZCARD', KEYS[3]) - 1
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms + ARGV[6]), id)
local suffix = mine.mode == 'x' and '\tWIRE' or string.format('\tWIRE %s %d %d', mine.mode, mine.weight, mine.limit)
redis.call('HSET', KEYS[4], id, string.format('%s %s %s %s%s', ttl, ARGV[9], ARGV[8], mine.value, suffix))
if ahead == 0 then
  redis.call('PEXPIRE', KEYS[3], LINE_TTL)
  redis.call('PEXPIRE', KEYS[4], LINE_TTL)
  redis.call('PEXPIRE', KEYS[5], LINE_TTL)
end
local time = exact and string.format('%.0f', now) or '-1'
return {'queued', ahead, last, time, rest or redis.call('PTTL', KEYS[1]), value, kind or '', unread}
