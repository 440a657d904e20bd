-- The reply to a claim that this server must refuse; nil if it may grant, or if the client does not require a quarantine.
local function refusal(epoch, quorum)
  if not KEYS[8] or not quorum or quorum == '' then return nil end
  local marker = redis.call('HMGET', KEYS[8], 'epoch', 'until', 'quorum', 'version')
  if marker[4] and marker[4] ~= 'WIRE' then return {'version', marker[4]} end
  local till = tonumber(marker[2])
  if marker[1] ~= epoch or not till then return {'handshake'} end
  if marker[3] ~= quorum then return {'nodeset', marker[3] or '', redis.call('HGET', KEYS[8], 'nodes') or ''} end
  if till == 0 then return nil end
  -- Only the server's clock counts: if TIME is denied, the claim fails.
  local time = redis.call('TIME')
  local rest = till - (time[1] * 1000 + math.floor(time[2] / 1000))
  if rest > 0 then return {'quarantined', rest} end
  return nil
end

