-- Hands the lock to the next waiter.

local CAP = 32               -- waiters that one call looks at

-- Grants the free lock to the first waiter that is alive, with a short lease until the waiter confirms. A waiter whose channel
-- has no subscriber is dead. Waiters that are skipped leave the queue, except a live waiter whose entry cannot be read: it keeps
-- its position until its life ends, and its client rewrites the entry with each poll.
-- The message contains the run id, because replicas forward the messages of their master to clients that are connected to them.
-- In every version the key follows a tab, so that a client that cannot read the rest can poll for the key.
-- Returns "mine" if `me` is the next waiter, and removes it from the queue; "given" if another waiter now has the lock; "nobody" if
-- no other waiter is left; "more" if the call reached its limit and waiters are left; "unreadable" if it reached the limit and no
-- entry could be read, so that another call would give the same result. The second value describes the first unreadable entry, if
-- any: holder id, length and beginning.
local function advance(me, client_time, claim_ttl, run_id)
  -- Checked first, because the queue is usually empty. A key of another type counts as an empty queue.
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody' end
  local now, exact = clock(client_time)
  -- The fields of every version. Later versions add fields after the first tab; they request less than an exclusive lock, so an
  -- exclusive grant is correct for them as well.
  local COMMON = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)'
  local SHOWN = 16           -- bytes of an unreadable entry that are reported
  local kept, unread = 0
  for _ = 1, CAP do
    local id = redis.call('ZRANGE', KEYS[3], kept, kept)[1]
    if not id then return 'nobody', unread end
    -- These keys may have other types; then the waiter counts as dead.
    local alive, entry, ttl, wanted, channel, value = tonumber(tolerant('ZSCORE', KEYS[5], id))
    if alive and alive * 1000 > now then
      entry = tolerant('HGET', KEYS[4], id) or ''
      ttl, wanted, channel, value = string.match(entry, COMMON)
    end
    if entry and id ~= me and not is_holder(value, id) then
      kept = kept + 1
      unread = unread or {id, #entry, string.sub(entry, 1, SHOWN)}
    else
      redis.call('ZREM', KEYS[3], id)
      tolerant('HDEL', KEYS[4], id)
      tolerant('ZREM', KEYS[5], id)
      if id == me then return 'mine', unread end
      if entry then
        local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
        local last, count = next_block(client_time, wanted, false, now, exact)
        local readers = 1
        if channel ~= '-' then
          local message = '1 ' .. run_id .. ' ' .. id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. '\t' .. KEYS[1]
          readers = redis.pcall('PUBLISH', channel, message)
        end
        if type(readers) == 'table' or readers > 0 then
          redis.call('SET', KEYS[1], value, 'PX', lease)
          return 'given', unread
        end
      end
    end
  end
  if kept == CAP then return 'unreadable', unread end
  return redis.call('ZCARD', KEYS[3]) > kept and 'more' or 'nobody', unread
end

