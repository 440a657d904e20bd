-- Reads or writes the stock with a fencing token, unless the resource has seen a greater one, of a writer or of a reader.
--
-- KEYS  1 resource   ARGV  1 token   2 new stock, or "" to read      Reply  1, or 0 if rejected
for _, seen in ipairs(redis.call('HMGET', KEYS[1], 'fence', 'reader')) do
  if tonumber(seen or '0') > tonumber(ARGV[1]) then return 0 end
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'stock', ARGV[2]) end
return 1
