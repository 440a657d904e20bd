-- Removes the completion of a lock, if it is the one that the client saw.
--
-- ARGV  1 completion
-- Reply {"cleared"}, {"absent"} if there is none, or {"changed"} if there is another one

local text, kind = completion()
if not kind and text == '' then return {'absent'} end
if kind or text ~= ARGV[1] then return {'changed'} end
redis.call('DEL', KEYS[2])
return {'cleared'}
