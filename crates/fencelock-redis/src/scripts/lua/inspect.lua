-- Returns the holders of the lock, and the first waiters. Read-only.
--
-- ARGV  1 maximum number of waiters to name      2 run id      3 quorum: for a client that requires a quarantine
-- Reply {value, type, pttl, fence or "", waiters, named waiters}, or the number of waiters if the lock is free; if it is free and
--       the server may have lost a grant, the refusal of a claim
-- If several clients hold the lock, pttl is the remaining time of the hold that ends first; for value and type see shared.lua.
-- The named waiters are the first ones that are alive, behind at most CAP others, one in each line: ms since the ticket, or
-- nothing if it is no time, value, and the rest of the entry, with tabs in between. They are not named if TIME is denied.

local function named(most)
  local time = redis.pcall('TIME')
  if time.err then return '' end
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local CUT = 400            -- bytes of an entry: none of ours is longer
  local found, lines = tolerant('ZRANGE', KEYS[3], 0, most + CAP - 1, 'WITHSCORES') or {}, {}
  for i = 1, #found, 2 do
    if #lines == most then break end
    local alive = tonumber(tolerant('ZSCORE', KEYS[5], found[i]))
    local entry = alive and alive > now_ms and tolerant('HGET', KEYS[4], found[i]) or ''
    local value, suffix = string.match(string.sub(entry, 1, CUT), '^[1-9]%d* [1-9]%d* %S+ ([^\t\n]*)\t?([^\n]*)')
    if is_holder(value, found[i]) then
      local ticket = tonumber(found[i + 1])
      local waited = ticket % 1000 == 0 and string.format('%.0f', now_ms - ticket / 1000) or ''
      lines[#lines + 1] = waited .. '\t' .. value .. '\t' .. suffix
    end
  end
  return table.concat(lines, '\n')
end

local value, kind = occupant()
local shared, rest = shared_lock(value, kind)
if shared then
  local time = redis.call('TIME')
  value, kind, rest = holds().described(shared, time[1] * 1000 + math.floor(time[2] / 1000))
end
if not value then return refusal(ARGV[2], ARGV[3]) or living() end
local last, waiting = fence(), living()
return {
  value, kind or '', rest or redis.call('PTTL', KEYS[1]), last > 0 and string.format('%.0f', last) or '', waiting,
  waiting > 0 and named(tonumber(ARGV[1])) or '',
}
