-- The content of a key, whatever its type, in the words of the model.
--
-- KEYS  1 key      Reply  the text, or nil without a key
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return false end
if kind == 'string' then return redis.call('GET', KEYS[1]) end
local parts = {}
if kind == 'zset' then
  parts = redis.call('ZRANGE', KEYS[1], 0, -1)
elseif kind == 'hash' then
  local fields = redis.call('HGETALL', KEYS[1])
  for at = 1, #fields, 2 do parts[#parts + 1] = fields[at] .. '=' .. fields[at + 1] end
end
table.sort(parts)
return table.concat(parts, ',')
