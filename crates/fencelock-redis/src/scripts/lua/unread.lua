-- Returns the data of a lock that this version cannot read, for doctor. Read-only.
--
-- KEYS  8 completion: see completion.lua
-- Reply {value of the lock or "", type and beginning of the completion if it cannot be read, else "" and "", number of unreadable
--       entries, {holder id, length, beginning} of the first unreadable entry}
--
-- Only the first waiters are checked: a waiter that is never served moves to the front.

local MOST = 100             -- waiters
local SHOWN = 16             -- bytes of an entry
local COMMON = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)'      -- as in grant.lua

local value, kind = occupant()
local time = redis.pcall('TIME')
-- If TIME is denied, every waiter counts as alive.
local now_ms = time.err and 0 or time[1] * 1000 + math.floor(time[2] / 1000)
local found, first = 0
for _, id in ipairs(tolerant('ZRANGE', KEYS[3], 0, MOST - 1) or {}) do
  local entry, alive = tolerant('HGET', KEYS[4], id), tonumber(tolerant('ZSCORE', KEYS[5], id))
  local _, _, _, written = string.match(entry or '', COMMON)
  if alive and alive > now_ms and not is_holder(written, id) then
    found = found + 1
    first = first or {id, entry and #entry or 0, string.sub(entry or '', 1, SHOWN)}
  end
end
local text, unreadable = completion()
return {not kind and value or '', unreadable or '', unreadable and text or '', found, first}
