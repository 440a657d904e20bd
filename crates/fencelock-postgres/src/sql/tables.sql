-- Layout 1. Times are microseconds since 1970 by the clock of the server, and durations microseconds. Columns are only added, with
-- defaults, so clients of every version can share the tables. In a schema without it, the program creates everything without
-- IF NOT EXISTS and OR REPLACE: nothing of another program is taken for ours.

-- Its functions run with the rights of who makes them. Nobody logs in as pg_database_owner.
DO $$
DECLARE
    v_owner text := (SELECT rolname FROM pg_roles r, pg_namespace n, pg_database d WHERE n.oid = to_regnamespace('fencelock')
        AND datname = current_database() AND r.oid = CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END AND NOT rolsuper);
BEGIN
    IF v_owner IS NOT NULL AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        RAISE EXCEPTION 'the schema belongs to %: use a URL with that role, or another schema', v_owner USING ERRCODE = 'FL004';
    END IF;
END $$;

-- The functions that are here already.
SELECT set_config('fencelock_init.known', coalesce(string_agg(oid::text, ' '), ''), true)
  FROM pg_proc WHERE pronamespace = to_regnamespace('fencelock');

CREATE TABLE IF NOT EXISTS fencelock.meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    layout int NOT NULL,
    -- No token of a row that was removed is greater.
    floor bigint NOT NULL DEFAULT 0,
    -- The server that has all grants, see `run`. If another one answers, it grants nothing for `span`, that is `until` then; 0 is never.
    run text,
    span bigint NOT NULL DEFAULT 0,
    until bigint NOT NULL DEFAULT 0
);
INSERT INTO fencelock.meta (layout) VALUES (1) ON CONFLICT DO NOTHING;

-- A key is free when `ends` has passed and `waiting` is 0; then `holder` and what follows are of its last hold. Only the key is indexed, so that every update is HOT.
CREATE TABLE IF NOT EXISTS fencelock.locks (
    key text COLLATE "C" PRIMARY KEY CONSTRAINT a_key_has_1_to_512_bytes CHECK (octet_length(key) BETWEEN 1 AND 512),
    fence bigint NOT NULL DEFAULT 0,
    ends bigint NOT NULL DEFAULT 0,
    since bigint NOT NULL DEFAULT 0,
    -- Of the latest renewal, or of the grant.
    ttl bigint NOT NULL DEFAULT 0,
    -- Who has a later ticket waits: a search for the next one does not walk over the dead index entries of those before.
    head bigint NOT NULL DEFAULT 0,
    waiting int NOT NULL DEFAULT 0,
    -- The tokens of the hold end with `fence`.
    count int NOT NULL DEFAULT 1,
    -- The key was handed over, and its holder has not confirmed that.
    is_handed boolean NOT NULL DEFAULT false,
    -- NULL if clients hold the key together: see waiters. No hold of theirs lasts longer than until `ends`.
    holder bytea,
    owner text,
    channel text
) WITH (fillfactor = 50);

-- The queues, and behind each its head: the clients that hold the key together. So a grant to a reader changes its row in place. Rows
-- are added and removed only under the row of their key, so tickets are in the order of arrival.
CREATE TABLE IF NOT EXISTS fencelock.waiters (
    key text COLLATE "C",
    ticket bigint,
    holder bytea NOT NULL,
    owner text NOT NULL,
    ttl bigint NOT NULL,
    count int NOT NULL,
    channel text NOT NULL,
    -- The limit of the semaphore; 0 for a shared lock, and -1 for an exclusive one.
    permits int NOT NULL,
    weight int NOT NULL,
    -- A waiter that has not polled until then is passed over, and a hold is over.
    alive_till bigint NOT NULL,
    -- Of a hold: as in locks.
    fence bigint,
    -- When it has come, or was granted the key.
    since bigint NOT NULL,
    is_handed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (key, ticket),
    UNIQUE (key, holder)
) WITH (fillfactor = 50);

-- All holds, also those that are over.
CREATE OR REPLACE VIEW fencelock.holds AS
    SELECT key, 0::bigint AS ticket, holder, owner, channel, fence, count, since, ttl, ends, is_handed, -1 AS permits, 0 AS weight, waiting
      FROM fencelock.locks WHERE holder IS NOT NULL
    UNION ALL
    SELECT w.key, w.ticket, w.holder, w.owner, w.channel, w.fence, w.count, w.since, w.ttl, w.alive_till, w.is_handed, w.permits, w.weight, l.waiting
      FROM fencelock.locks l JOIN fencelock.waiters w ON w.key = l.key AND w.ticket <= l.head WHERE l.holder IS NULL;

CREATE TABLE IF NOT EXISTS fencelock.completions (
    key text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL,
    token bigint NOT NULL,
    granted bigint NOT NULL,
    owner text NOT NULL
);

-- The greatest token that each receiver has seen.
CREATE TABLE IF NOT EXISTS fencelock.gates (name text COLLATE "C" PRIMARY KEY, fence bigint NOT NULL) WITH (fillfactor = 50);

-- Also a role that may update the table cannot make tokens repeat. A trigger BEFORE each row would lock the row first, which is a quarter
-- of what a cycle writes to the log.
CREATE OR REPLACE FUNCTION fencelock.refuse_smaller_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the fencing token of % must not decrease', OLD.key USING ERRCODE = 'FL002';
END $$;
CREATE OR REPLACE TRIGGER fence AFTER UPDATE ON fencelock.locks FOR EACH ROW WHEN (NEW.fence < OLD.fence)
    EXECUTE FUNCTION fencelock.refuse_smaller_fence();
