-- What keeps this server from granting, as the reply to a claim; nil if nothing does, or if nobody asked for a guard.
local function refusal(epoch, quorum)
  if not KEYS[6] then return nil end
  local marker = redis.call('HMGET', KEYS[6], 'epoch', 'until', 'quorum', 'version')
  if marker[4] and marker[4] ~= '1' then return {'version', marker[4]} end
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', redis.call('HGET', KEYS[6], 'nodes') or ''} end
  if till == 0 then return nil end
  -- Not by anybody else's clock: where TIME is refused, so is the claim.
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end

