-- Writes the remaining stock of one or two resources with fencing tokens and records the sales, unless a resource has seen a
-- greater token, of a writer or of a reader.
--
-- KEYS  for each resource: resource, sales      ARGV  for each: token, new stock, amount      Reply  1, or 0 if rejected
for at = 1, #KEYS, 2 do
  local token = tonumber(ARGV[(at * 3 - 1) / 2])
  for _, seen in ipairs(redis.call('HMGET', KEYS[at], 'fence', 'reader')) do
    if tonumber(seen or '0') > token then return 0 end
  end
end
for at = 1, #KEYS, 2 do
  local token, stock, amount = unpack(ARGV, (at * 3 - 1) / 2, (at * 3 + 3) / 2)
  redis.call('HSET', KEYS[at], 'fence', token, 'stock', stock)
  redis.call('INCRBY', KEYS[at + 1], amount)
end
return 1
