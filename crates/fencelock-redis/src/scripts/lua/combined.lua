-- The common cases of several locks: claims and releases. Each lock occurs once.
--
-- It does what the scripts of each lock would do in their common case: see release_fast.lua and acquire_fast.lua. What is no common
-- case is left as it was, and the client calls its script. An error concerns one lock only, so none is raised.
--
-- KEYS  of r releases and c claims: r locks, r queues, c locks, c queues, c fences
-- ARGV  1 r      then r times "<holder id> "      then c times value to write, ttl in ms, fencing tokens wanted
-- Reply if each of them is the common case: the last token, which is that of every claim, or 1 without claims. Else for each of
--       them, in this order: 0 if it is no common case, else as its script. One number costs the server and the client less.

local releases = tonumber(ARGV[1])
local claims = (#ARGV - 1 - releases) / 3
local answers, common = {}, 0

-- Before the releases: a script that has deleted may write where the memory is full.
local first = 2 * releases
local time = claims > 0 and redis.pcall('TIME')
-- Not a number if TIME is denied.
local now = time and not time.err and time[1] * 1000000 + time[2]
if now and now <= 9007199254740991 then
  local last, argument = string.format('%d', now), 1 + releases
  local free = redis.pcall('EXISTS', unpack(KEYS, first + 1, first + 2 * claims)) == 0
  for i = 1, claims do
    local lock, line, fence = KEYS[first + i], KEYS[first + claims + i], KEYS[first + 2 * claims + i]
    if free or redis.pcall('EXISTS', lock, line) == 0 then
      local text = redis.pcall('SET', fence, last, 'PX', '86400000', 'GET')
      -- Not a number if the fence has another type or another content, or if the server does not know this form of SET.
      local previous = tonumber(text or 0)
      if previous and previous >= 0 and previous + 1 <= now then
        -- The lock does not exist, so the reply is nil.
        if not redis.pcall('SET', lock, ARGV[argument + 1], 'PX', ARGV[argument + 2], 'GET') then
          local wanted = tonumber(ARGV[argument + 3])
          local count = previous == 0 and 1 or math.min(wanted, now - previous)
          answers[releases + i] = count == wanted and now or {'granted', last, count}
          common = common + (count == wanted and 1 or 0)
        end
      elseif type(text) == 'string' then
        redis.pcall('SET', fence, text, 'PX', '86400000')
      end
    end
    argument = argument + 3
  end
end

if releases > 0 then
  -- One command for all queues. If any exists, each is checked alone.
  local idle = redis.pcall('EXISTS', unpack(KEYS, releases + 1, 2 * releases)) == 0
  local held, mine = {}, {}
  for i = 1, releases do
    if redis.pcall('GETRANGE', KEYS[i], '0', '32') == ARGV[1 + i] and (idle or redis.pcall('EXISTS', KEYS[releases + i]) == 0) then
      held[#held + 1], mine[#mine + 1] = KEYS[i], i
    end
  end
  if held[1] and redis.pcall('DEL', unpack(held)) == #held then
    for _, i in ipairs(mine) do answers[i] = 1 end
    common = common + #held
  end
end
if common == releases + claims then return claims > 0 and now or 1 end
for i = 1, releases + claims do answers[i] = answers[i] or 0 end
return answers
