-- Returns the completion of a lock, and the time. Read-only.
--
-- ARGV  1 run id      2 quorum: for a client that requires a quarantine
-- Reply {completion or "", its type if it cannot be read, else "", time of the server, us}; or the refusal of a claim, if the
--       server may have lost the completion

local refused = refusal(ARGV[1], ARGV[2])
if refused then return refused end
local text, kind = completion()
return {text, kind or '', string.format('%.0f', now_us())}
