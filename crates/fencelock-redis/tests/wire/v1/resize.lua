--@granting
local refused = refusal(ARGV[6], ARGV[7])
if refused then return refused end
local value, kind = occupant()
if not value then return {'absent'} end
local shared, limit, before, ticket = shared_lock(value, kind), tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not shared then return {'taken', value, kind or ''} end
local now, exact = clock(ARGV[4])
if not exact then return {'noclock'} end
now = math.floor(now / 1000)
if shared.mode ~= 's' or before and shared.limit ~= limit then
  value, kind = holds().described(shared, now)
  return value and {'taken', value, kind} or {'absent'}
end
local more
shared, more = grants().bury(shared, now)
if not shared then
  local _, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6])
  return {'absent', unread}
end
before = before or shared.limit
if shared.limit ~= limit then
  shared.limit, shared.value = limit, string.format('fencelock:1:s:%d:%s', limit, string.match(value, '%d+$'))
  redis.call('SET', KEYS[1], shared.value, 'KEEPTTL')
end
if before ~= limit then
  local waiting = tolerant('ZRANGEBYSCORE', KEYS[3], '(' .. ticket, '+inf', 'WITHSCORES', 'LIMIT', 0, CAP) or {}
  for i = 1, #waiting, 2 do
    if not grants().take_over(waiting[i], before, limit) then leave(waiting[i]) end
    ticket = waiting[i + 1]
  end
  more = more or #waiting == 2 * CAP
end
local turn, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6], shared)
local held = redis.call('ZCOUNT', KEYS[6], string.format('%.0f', now), '+inf')
return {'resized', before, grants().used(shared), held, (more or turn == 'more') and 1 or 0, ticket, unread}
