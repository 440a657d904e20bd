-- The arguments of release.lua, from those of its common case.

local ARGV = (function(id, rest)
  local run_id, quorum, client_time, claim_ttl = string.match(rest, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  return {string.sub(id, 1, 32), client_time, claim_ttl, run_id, quorum}
end)(ARGV[1], ARGV[2])

