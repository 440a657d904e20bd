-- Hands the lock to the next waiters.

local passed = 0

-- Removes a waiter.
local function leave(id)
  if tolerant('ZREM', KEYS[3], id) ~= 1 then return end
  tolerant('HDEL', KEYS[4], id)
  tolerant('ZREM', KEYS[5], id)
end

-- Publishes a message for a waiter, and returns the number of subscribers, or 1 if it does not show whether the waiter is alive.
-- In a cluster, a channel ends with its hash slot, ":<node>:{<number>}", and only the node on which the waiter subscribed counts
-- its subscribers: the slot may have been moved since. If the slot has returned to the node, this channel has no subscriber, but
-- the channel of the client, "<client>:<node>", has. A channel that ends with ":cluster" is published to all nodes, and no node
-- counts all of its subscribers.
local function notify(channel, message, run_id)
  local client, node, slot = string.match(channel, '^(.*:(%w+)):({%d+})$')
  local readers = redis.pcall(slot and 'SPUBLISH' or 'PUBLISH', channel, message)
  if string.sub(channel, -8) == ':cluster' or slot and node ~= string.sub(run_id, 1, 8) then return 1 end
  if slot and readers == 0 then
    local there = redis.pcall('PUBSUB', 'NUMSUB', client)
    return there.err and 1 or there[2]
  end
  return readers
end

-- Grants the lock to live waiters at the front of the queue, with a short lease until they confirm it, as long as the first one
-- fits. A waiter fits if the lock is free, or if `shared` can have another hold. The first waiter that does not fit stops the
-- queue. A waiter whose channel has no subscriber is dead; see `notify`. Waiters that are skipped leave the queue, except a live
-- waiter whose entry cannot be read: it keeps its position until its life ends, and its client rewrites the entry with each poll.
-- The message contains the run id, because replicas forward the messages of their master to clients that are connected to them.
-- In every version the key follows a tab, so that a client that cannot read the rest can poll for the key.
-- Returns "mine" if the claim `mine` is the next to be granted, and removes it from the queue; "given" if a waiter got an exclusive
-- lock; "blocked" if the first waiter does not fit; "nobody" if no other waiter is left; "more" if the call reached its limit and
-- waiters are left; "unreadable" if it reached the limit and no entry could be read, so another call would have the same result.
-- The second value describes the first unreadable entry, if any: holder id, length and beginning. The third is the shared lock.
local function advance(mine, client_time, claim_ttl, run_id, shared)
  -- Checked first, because the queue is usually empty. A key of another type counts as an empty queue.
  local waiting = tolerant('ZCARD', KEYS[3])
  if not waiting or waiting == 0 then return 'nobody', nil, shared end
  local now, exact = clock(client_time)
  local SHOWN = 16           -- bytes of an unreadable entry that are reported
  local kept, unread = 0
  while passed < CAP do
    passed = passed + 1
    local id = redis.call('ZRANGE', KEYS[3], kept, kept)[1]
    if not id then return 'nobody', unread, shared end
    local is_mine = mine and id == mine.id
    -- If another program changed the type of these keys, the waiter counts as dead.
    local alive, entry, ttl, wanted, channel, value, suffix = tonumber(tolerant('ZSCORE', KEYS[5], id))
    if alive and alive * 1000 > now then
      entry = tolerant('HGET', KEYS[4], id) or ''
      ttl, wanted, channel, value, suffix = string.match(entry, COMMON)
    end
    if entry and not is_mine and not is_holder(value, id) then
      kept = kept + 1
      unread = unread or {id, #entry, string.sub(entry, 1, SHOWN)}
    else
      -- Without the server's time, every grant is exclusive.
      local claim = is_mine and mine or entry and EXCLUSIVE
      if claim == EXCLUSIVE and exact and suffix ~= '\tWIRE' then claim = grants().mode_of(suffix) end
      if claim and shared and not grants().fits(shared, claim) then return 'blocked', unread, shared end
      leave(id)
      if is_mine then return 'mine', unread, shared end
      if entry then
        local lease = math.min(tonumber(ttl), tonumber(claim_ttl))
        local last, count = next_block(client_time, wanted, false, now, exact)
        local readers = 1
        if channel ~= '-' then
          local message = 'WIRE ' .. run_id .. ' ' .. id .. ' ' .. last .. ' ' .. count .. ' ' .. lease .. '\t' .. KEYS[1]
          readers = notify(channel, message, run_id)
        end
        if type(readers) == 'table' or readers > 0 then
          if claim.mode == 'x' then
            redis.call('SET', KEYS[1], value, 'PX', lease)
            return 'given', unread
          end
          claim.id, claim.value = id, value
          shared = grants().add(shared, claim, last, lease, math.floor(now / 1000))
        end
      end
    end
  end
  if kept == CAP then return 'unreadable', unread, shared end
  return redis.call('ZCARD', KEYS[3]) > kept and 'more' or 'nobody', unread, shared
end

