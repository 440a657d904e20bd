-- Stores the completion of a lock, unless a stored one ends later or belongs to a later run.
--
-- ARGV  1 holder id, which must hold the lock, or "-" to restore a completion that another node has
--       2 completion      3 its end, us      4 its fencing token      5 how long it is kept after its end, ms
-- Reply {"written"}, {"absent"} if the client does not hold the lock, or {"unread", type, beginning} if the present value cannot
--       be read

if ARGV[1] ~= '-' then
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 32)
  -- If the key has another type, the reply is an error, not a string.
  if type(value) ~= 'string' or string.sub(value, 1, 32) ~= ARGV[1] then return {'absent'} end
  if #value == 33 and string.sub(value, 33) ~= ' ' then return {'absent'} end
end
local text, kind = completion()
if kind then return {'unread', kind, text} end
local till, token = tonumber(ARGV[3]), tonumber(ARGV[4])
local stored_till, stored_token = string.match(text, '^WIRE (%d+) (%d+) ')
if stored_till then
  stored_till, stored_token = tonumber(stored_till), tonumber(stored_token)
  if stored_till > till or (stored_till == till and stored_token >= token) then return {'written'} end
end
local left = math.ceil((till - now_us()) / 1000) + ARGV[5]
if left > 0 then redis.call('SET', KEYS[2], ARGV[2], 'PX', string.format('%.0f', left)) end
return {'written'}
