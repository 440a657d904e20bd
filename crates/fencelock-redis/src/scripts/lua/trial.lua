-- Runs a script of a lock for `doctor`, which replaces SCRIPT: whatever the script does, nothing that it writes outlives 5 s, also if
-- it fails in the middle or its client is killed. It writes nothing before the script: a full memory refuses only the first write of a
-- script. So the client checks before that it may use PEXPIRE. An error names the command that the server refused.
--
-- KEYS, ARGV, reply: those of the script, with all keys of the lock

local LONGEST = 5000         -- ms

-- A key that lives longer belongs to another client, although the user named a lock that no program uses.
local is_own = {}
for i = 1, #KEYS do
  local left = redis.pcall('PTTL', KEYS[i])
  -- Not the marker of the server either.
  local may = type(left) == 'number' and left ~= -1 and left <= LONGEST
  is_own[i] = may and string.find(KEYS[i], 'fencelock:node', 1, true) ~= 1
end

local last = ''
local is_done, reply = pcall(function()
  local server = redis
  local redis = {
    call = function(name, ...)
      last = name
      return server.call(name, ...)
    end,
    pcall = server.pcall,
  }
  -- SCRIPT
end)

for i = 1, #KEYS do
  local left = is_own[i] and redis.pcall('PTTL', KEYS[i])
  if left and (left == -1 or left > LONGEST) then redis.pcall('PEXPIRE', KEYS[i], LONGEST) end
end
if is_done then return reply end
-- A table since Redis 7.0.
local text = type(reply) == 'table' and reply.err or tostring(reply)
return {err = string.gsub(text, '^@user_script: ?%d+: ', '') .. ' (' .. last .. ')'}
