-- Releases the lock, or removes a waiter from the queue.
--
-- ARGV  1 holder id      2 client's time, us      3 lease of a hand-off, ms      4 run id      5 quorum
-- Reply {"released" | "absent", 1 if there are more dead waiters than one call passes over, else 0} | {"taken", value, type}
-- If the script found an unreadable entry in the queue, the reply ends with {holder id, length of the entry, beginning of the entry}.
--
-- A server that may not grant does not hand over either: its queue may be older than the data that it lost. After the reply 1
-- the client calls the script again, or leaves the rest to the next claim.

local value, kind = occupant()
local answer = 'absent'
if is_holder(value, ARGV[1]) then
  redis.call('DEL', KEYS[1])
  answer = 'released'
else
  if tolerant('ZREM', KEYS[3], ARGV[1]) == 1 then
    tolerant('HDEL', KEYS[4], ARGV[1])
    tolerant('ZREM', KEYS[5], ARGV[1])
  end
  if value then return {'taken', value, kind or ''} end
end
local turn, unread
if not refusal(ARGV[4], ARGV[5]) then turn, unread = advance(nil, ARGV[2], ARGV[3], ARGV[4]) end
return {answer, turn == 'more' and 1 or 0, unread}
