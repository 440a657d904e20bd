-- Whether a claim never fits a lock, or a waiter, that is not exclusive: all clients must use a key in the same mode, with one limit.
-- The limit of a shared lock is 0.
local function conflicts(present, claim)
  return claim.mode ~= 'x' and present.mode ~= 'x' and claim.limit ~= present.limit
end

-- What the last waiter asks for; nil if there is none, or if it is dead.
local function last_waiter(now)
  local id = (tolerant('ZREVRANGE', KEYS[3], 0, 0) or {})[1]
  local alive = id and tonumber(tolerant('ZSCORE', KEYS[5], id))
  if not alive or alive * 1000 <= now then return nil end
  local _, _, _, value, suffix = string.match(tolerant('HGET', KEYS[4], id) or '', COMMON)
  return is_holder(value, id) and mode_of(suffix) or nil
end

