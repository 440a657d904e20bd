-- Removes the completion of a lock, if it is that of the run that the client saw, or of an earlier one.
--
-- ARGV  1 fencing token of the run
-- Reply {"cleared"}, {"absent"} if there is none, or {"changed"} if there is another one

local text, kind = completion()
if not kind and text == '' then return {'absent'} end
if kind or tonumber(string.match(text, '^%d %d+ (%d+) ')) > tonumber(ARGV[1]) then return {'changed'} end
redis.call('DEL', KEYS[2])
return {'cleared'}
