-- The arguments of acquire.lua, if those of its common case were sent.

local ARGV = ARGV[5] and ARGV or (function(value, ttl, wanted, rest)
  local run_id, quorum, intent, client_time, life, claim_ttl, channel =
    string.match(rest, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  return {intent, string.sub(value, 1, 32), value, ttl, client_time, life, claim_ttl, channel, wanted, 'own', run_id, quorum}
end)(ARGV[1], ARGV[2], ARGV[3], ARGV[4])

