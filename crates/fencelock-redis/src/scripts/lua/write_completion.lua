-- Merges the completion of a lock into the stored one: the later run, until the later end. If one of them is so far in the future
-- that the clock was ahead when it was written, the other one is stored.
--
-- ARGV  1 holder id, which must hold the lock, or "-" to restore a completion that was read
--       2 completion      3 its end, us      4 its fencing token      5 how long it is kept after its end, and may lie in
--       the future, ms
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
local new, till, token, now = ARGV[2], ARGV[3], tonumber(ARGV[4]), now_us()
local function is_ahead(text)
  return tonumber(string.match(text, '^2 %d+ %d+ (%d+) ')) > now + ARGV[5] * 1000
end
local stored_till, stored_token = string.match(text, '^2 (%d+) (%d+) ')
if stored_till and is_ahead(text) == is_ahead(new) then
  stored_token = tonumber(stored_token)
  local is_later = tonumber(stored_till) >= tonumber(till)
  if is_later and stored_token >= token then return {'written'} end
  if stored_token > token then new = text end
  if is_later then till = stored_till end
  new = string.gsub(new, '^2 %d+', '2 ' .. till)
elseif stored_till and is_ahead(new) then
  return {'written'}
end
local left = math.ceil((till - now) / 1000) + ARGV[5]
if left > 0 then redis.call('SET', KEYS[2], new, 'PX', string.format('%.0f', left)) end
return {'written'}
