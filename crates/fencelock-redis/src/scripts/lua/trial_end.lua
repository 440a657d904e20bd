-- Removes what a trial of `doctor` has left.
--
-- KEYS  1 lock      2 fence      3 line      and the other side keys, also that of a completion
-- ARGV  1 "own" if no other client knows the name of the lock, else "named": then a lock that is held or waited for is not changed
-- Reply 1, or 0 if nothing was changed

if ARGV[1] ~= 'own' and redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
local removed = redis.pcall('UNLINK', unpack(KEYS))
if type(removed) == 'table' then redis.call('DEL', unpack(KEYS)) end
return 1
