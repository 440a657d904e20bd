-- The version of the wire: of entries in the line, hand-off messages and the marker. docs/redis.md has the rules.
local VERSION = '1'
-- What every version can read of an entry. What follows the first tab is of a later version: who wrote it wants no more than the
-- whole lock, so an exclusive grant is right for any of them.
local ENTRY = '^([1-9]%d*) ([1-9]%d*) (%S+) ([^\t]*)'

