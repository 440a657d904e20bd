-- The first version of the functions. A change that an old client would notice has a new name with the next number, and stays
-- beside the old one. Locks are taken in one order: the row of the key, then its waiters; several keys in the order of "C".

CREATE OR REPLACE FUNCTION micros() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint
$$;

-- What this transaction has written may be lost in a crash: a release, or a place in a queue.
CREATE OR REPLACE FUNCTION commit_lazily() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

CREATE OR REPLACE FUNCTION hello_1(OUT o_layout int, OUT o_system text, OUT o_timeline text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    SELECT layout INTO o_layout FROM meta;
    SELECT system_identifier::text INTO o_system FROM pg_control_system();
    -- The checkpoint of a server that was just promoted still has the old one.
    IF NOT pg_is_in_recovery() THEN o_timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8); END IF;
END $$;

-- Removes some old rows from a random part of the table.
CREATE OR REPLACE FUNCTION purge(p_percent float4, p_before bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_top bigint;
    v_gone int;
BEGIN
    WITH old AS (
        SELECT key FROM locks TABLESAMPLE SYSTEM (p_percent) WHERE waiting = 0 AND greatest(since, ends) < p_before
        LIMIT 200 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM locks USING old WHERE locks.key = old.key RETURNING locks.fence
    )
    SELECT max(fence), count(*) INTO v_top, v_gone FROM gone;
    IF v_gone > 0 THEN UPDATE meta SET floor = greatest(floor, v_top); END IF;
    DELETE FROM completions WHERE key IN (
        SELECT key FROM completions TABLESAMPLE SYSTEM (p_percent) WHERE until < p_before LIMIT 200 FOR UPDATE SKIP LOCKED
    );
    RETURN v_gone;
END $$;

-- Makes the row of a key. The floor is read after the row, which waits for a purge of the same key.
CREATE OR REPLACE FUNCTION make(p_key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO locks (key, since) VALUES (p_key, micros()) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE locks SET fence = greatest(fence, (SELECT floor FROM meta)) WHERE key = p_key;
    END IF;
END $$;

-- Hands a free key to the first live waiter. After 32 dead ones it stops, and `o_more` says so.
CREATE OR REPLACE FUNCTION advance(p_key text, p_now bigint, OUT o_handed boolean, OUT o_more boolean) LANGUAGE plpgsql AS $$
DECLARE
    v_waiter waiters;
    v_dead int := 0;
    v_head bigint;
BEGIN
    o_handed := false;
    o_more := false;
    SELECT head INTO v_head FROM locks WHERE key = p_key;
    LOOP
        -- With the row lock, this is its newest version: a poll may have come since.
        SELECT * INTO v_waiter FROM waiters WHERE key = p_key AND ticket > v_head ORDER BY ticket LIMIT 1 FOR UPDATE;
        IF NOT FOUND OR v_waiter.alive_till > p_now THEN EXIT; END IF;
        DELETE FROM waiters WHERE key = p_key AND ticket = v_waiter.ticket;
        v_dead := v_dead + 1;
        v_head := v_waiter.ticket;
        o_more := v_dead = 32;
        EXIT WHEN o_more;
    END LOOP;
    IF v_waiter.ticket IS NULL OR o_more THEN
        UPDATE locks SET is_handed = false, ends = 0, head = v_head,
               waiting = CASE WHEN o_more THEN greatest(waiting - v_dead, 1) ELSE 0 END
         WHERE key = p_key;
        RETURN;
    END IF;
    DELETE FROM waiters WHERE key = p_key AND ticket = v_waiter.ticket;
    -- Three seconds, until the waiter confirms.
    UPDATE locks SET holder = v_waiter.holder, owner = v_waiter.owner, channel = v_waiter.channel, since = p_now,
           ends = p_now + least(v_waiter.ttl, 3000000), is_handed = true, head = v_waiter.ticket,
           waiting = waiting - v_dead - 1, fence = greatest(fence + 1, p_now),
           count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least(v_waiter.count, p_now - fence), 1) END
     WHERE key = p_key;
    o_handed := true;
END $$;

-- p_intent: 0 try, 1 enqueue, 2 poll. o_answer: 0 granted, 1 busy, 2 queued, 3 gone, 4 ask again: dead waiters are in front.
CREATE OR REPLACE FUNCTION acquire_1(
    p_key text, p_holder bytea, p_owner text, p_ttl bigint, p_intent int, p_count int, p_channel text,
    OUT o_answer int, OUT o_fence bigint, OUT o_count int, OUT o_ahead int, OUT o_now bigint,
    OUT o_holder bytea, OUT o_owner text, OUT o_since bigint, OUT o_ends bigint, OUT o_handed boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v locks;
    v_ticket bigint;
    v_is_new boolean := false;
    v_more boolean := false;
BEGIN
    o_handed := false;
    o_now := micros();
    IF p_intent <> 2 THEN
        UPDATE locks SET holder = p_holder, owner = p_owner, channel = p_channel, since = o_now, ends = o_now + p_ttl,
               fence = greatest(fence + 1, o_now),
               count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least(p_count, o_now - fence), 1) END
         WHERE key = p_key AND waiting = 0 AND ends <= o_now
        RETURNING fence, count INTO o_fence, o_count;
        IF FOUND THEN
            o_answer := 0;
            RETURN;
        END IF;
    ELSE
        -- A poll while another client holds the key writes nothing but its own row.
        SELECT * INTO v FROM locks WHERE key = p_key;
        IF v.ends > o_now AND v.holder <> p_holder THEN
            UPDATE waiters SET alive_till = o_now + 3000000, count = p_count WHERE key = p_key AND holder = p_holder
            RETURNING ticket INTO v_ticket;
        END IF;
    END IF;
    IF v_ticket IS NULL THEN
        SELECT * INTO v FROM locks WHERE key = p_key FOR UPDATE;
        IF NOT FOUND AND p_intent = 2 THEN
            o_answer := 3;
            RETURN;
        END IF;
        IF NOT FOUND THEN
            PERFORM make(p_key);
            v_is_new := true;
            SELECT * INTO v FROM locks WHERE key = p_key FOR UPDATE;
        END IF;
        -- The lock may have been waited for.
        o_now := micros();
        IF v.waiting > 0 THEN
            UPDATE waiters SET alive_till = o_now + 3000000, count = p_count WHERE key = p_key AND holder = p_holder
            RETURNING ticket INTO v_ticket;
            IF v.ends <= o_now THEN
                SELECT a.o_handed, a.o_more INTO o_handed, v_more FROM advance(p_key, o_now) AS a;
                SELECT * INTO v FROM locks WHERE key = p_key;
            END IF;
        END IF;
    END IF;
    o_fence := v.fence;
    -- The client may have used some tokens before it asks again, but none after the last.
    o_count := CASE WHEN o_handed THEN v.count ELSE 1 END;
    IF v_more THEN
        o_answer := 4;
    ELSIF v.ends > o_now AND v.holder = p_holder THEN
        UPDATE locks SET ends = greatest(ends, o_now + p_ttl), is_handed = false WHERE key = p_key;
        o_answer := 0;
        o_handed := false;
        RETURN;
    ELSIF v.ends <= o_now AND p_intent <> 2 THEN
        UPDATE locks SET holder = p_holder, owner = p_owner, channel = p_channel, since = o_now, ends = o_now + p_ttl,
               fence = greatest(fence + 1, o_now),
               count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least(p_count, o_now - fence), 1) END
         WHERE key = p_key
        RETURNING fence, count INTO o_fence, o_count;
        o_answer := 0;
        IF v_is_new AND random() < 1.0 / 64 THEN
            -- Each new key looks at about as many rows as fit on one page, and a day is longer than any lease.
            PERFORM purge((SELECT least(100, 6400.0 / greatest(relpages, 64)) FROM pg_class
                            WHERE oid = 'locks'::regclass)::float4, o_now - 86400000000);
        END IF;
        RETURN;
    ELSIF v.ends <= o_now OR (p_intent = 2 AND v_ticket IS NULL) THEN
        o_answer := 3;
    ELSE
        o_answer := CASE p_intent WHEN 0 THEN 1 ELSE 2 END;
        IF p_intent = 1 AND v_ticket IS NULL THEN
            INSERT INTO waiters (key, holder, owner, ttl, count, channel, alive_till)
            VALUES (p_key, p_holder, p_owner, p_ttl, p_count, p_channel, o_now + 3000000) RETURNING ticket INTO v_ticket;
            UPDATE locks SET waiting = waiting + 1 WHERE key = p_key;
        END IF;
        SELECT count(*) INTO o_ahead FROM waiters WHERE key = p_key AND ticket > v.head AND ticket < v_ticket;
        o_holder := v.holder;
        o_owner := v.owner;
        o_since := v.since;
        o_ends := v.ends;
    END IF;
    IF NOT o_handed THEN PERFORM commit_lazily(); END IF;
END $$;

-- o_answer: 0 released, 1 absent, 2 taken by another client.
CREATE OR REPLACE FUNCTION release_1(
    p_key text, p_holder bytea, OUT o_answer int, OUT o_holder bytea, OUT o_owner text, OUT o_handed boolean, OUT o_more boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v locks;
    v_now bigint := micros();
BEGIN
    o_handed := false;
    o_more := false;
    -- The rest stays as it was: then the log of the server has only what has changed.
    UPDATE locks SET is_handed = false, ends = 0
     WHERE key = p_key AND holder = p_holder AND waiting = 0 AND ends > v_now;
    IF FOUND THEN
        o_answer := 0;
        PERFORM commit_lazily();
        RETURN;
    END IF;
    o_answer := 1;
    SELECT * INTO v FROM locks WHERE key = p_key FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    v_now := micros();
    DELETE FROM waiters WHERE key = p_key AND holder = p_holder;
    IF FOUND THEN UPDATE locks SET waiting = waiting - 1 WHERE key = p_key; END IF;
    IF v.ends > v_now AND v.holder = p_holder THEN
        o_answer := 0;
    ELSIF v.ends > v_now THEN
        o_answer := 2;
        o_holder := v.holder;
        o_owner := v.owner;
        PERFORM commit_lazily();
        RETURN;
    END IF;
    SELECT a.o_handed, a.o_more INTO o_handed, o_more FROM advance(p_key, v_now) AS a;
END $$;

-- Tells the holder of a key that was handed over. It is a transaction of its own, behind the one that hands over: with a
-- notification, commits of the whole cluster wait for each other.
CREATE OR REPLACE FUNCTION tell_1(p_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v locks;
BEGIN
    SELECT * INTO v FROM locks WHERE key = p_key AND is_handed;
    IF FOUND THEN
        PERFORM pg_notify(v.channel, format(E'1 %s %s %s %s\t%s', encode(v.holder, 'hex'), v.fence, v.count,
                                            (v.ends - v.since) / 1000, p_key));
    END IF;
END $$;

-- The hand-offs of a client that gets no notifications.
CREATE OR REPLACE FUNCTION handed_1(p_keys text[], p_holders bytea[])
RETURNS TABLE (o_key text, o_holder bytea, o_fence bigint, o_count int, o_ttl bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT l.key, l.holder, l.fence, l.count, l.ends - l.since
      FROM unnest(p_keys, p_holders) AS a (key, holder) JOIN locks l ON l.key = a.key AND l.holder = a.holder AND l.is_handed
$$;

-- o_answer: 0 renewed, 1 absent, 2 taken by another client. The rows are locked in the order of the keys, so that two batches do not
-- wait for each other; what others hold is not locked.
CREATE OR REPLACE FUNCTION renew_1(p_keys text[], p_holders bytea[], p_ttls bigint[], p_assumed bigint[])
RETURNS TABLE (o_answer int, o_waiting int, o_holder bytea, o_owner text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := micros();
BEGIN
    PERFORM 1 FROM locks l JOIN unnest(p_keys, p_holders) AS a (key, holder) ON l.key = a.key AND l.holder = a.holder
      WHERE l.ends > v_now ORDER BY l.key FOR UPDATE OF l;
    v_now := micros();
    RETURN QUERY
    WITH asked AS (
        SELECT * FROM unnest(p_keys, p_holders, p_ttls, p_assumed) WITH ORDINALITY AS a (key, holder, ttl, assumed, nth)
    ), done AS (
        UPDATE locks l SET is_handed = false,
               -- A lease that is longer by more than a second was granted before the clock was set back.
               ends = CASE WHEN l.ends > v_now + a.assumed + 1000000 THEN v_now + a.assumed ELSE greatest(l.ends, v_now + a.ttl) END
          FROM (SELECT key, holder, max(ttl) AS ttl, max(greatest(ttl, assumed)) AS assumed FROM asked GROUP BY key, holder) a
         WHERE l.key = a.key AND l.holder = a.holder AND l.ends > v_now
        RETURNING l.key, l.holder, l.waiting
    )
    SELECT CASE WHEN d.key IS NOT NULL THEN 0 WHEN l.ends > v_now AND l.holder <> a.holder THEN 2 ELSE 1 END,
           d.waiting, l.holder, l.owner
      FROM asked a LEFT JOIN done d ON d.key = a.key AND d.holder = a.holder LEFT JOIN locks l ON l.key = a.key ORDER BY a.nth;
END $$;

-- All held keys, or one.
CREATE OR REPLACE FUNCTION list_1(p_key text)
RETURNS TABLE (o_key text, o_holder bytea, o_owner text, o_fence bigint, o_waiting int, o_left bigint, o_age bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := micros();
BEGIN
    RETURN QUERY SELECT l.key, l.holder, l.owner, l.fence, l.waiting, l.ends - v_now, v_now - l.since
      FROM locks l WHERE (p_key IS NULL OR l.key = p_key) AND l.ends > v_now LIMIT 100001;
END $$;

CREATE OR REPLACE FUNCTION evict_1(p_key text, p_holders bytea[], OUT o_evicted boolean, OUT o_handed boolean, OUT o_more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v locks;
    v_now bigint;
BEGIN
    o_handed := false;
    o_more := false;
    SELECT * INTO v FROM locks WHERE key = p_key FOR UPDATE;
    v_now := micros();
    o_evicted := FOUND AND v.ends > v_now AND v.holder = ANY (p_holders);
    IF o_evicted THEN
        PERFORM pg_notify(v.channel, E'1\t' || p_key);
        SELECT a.o_handed, a.o_more INTO o_handed, o_more FROM advance(p_key, v_now) AS a;
    END IF;
END $$;

-- Removes the row of a free key before its time.
CREATE OR REPLACE FUNCTION forget_1(p_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_fence bigint;
BEGIN
    DELETE FROM locks WHERE key = p_key AND waiting = 0 AND ends <= micros() RETURNING fence INTO v_fence;
    IF FOUND THEN UPDATE meta SET floor = greatest(floor, v_fence); END IF;
END $$;

CREATE OR REPLACE FUNCTION read_completion_1(p_key text, OUT o_now bigint, OUT o_until bigint, OUT o_token bigint, OUT o_granted bigint, OUT o_owner text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    o_now := micros();
    SELECT until, token, granted, owner INTO o_until, o_token, o_granted, o_owner FROM completions WHERE key = p_key;
END $$;

-- Merges: the later run, until the later end. A run that lies more than an hour in the future gives way.
CREATE OR REPLACE FUNCTION write_completion_1(
    p_key text, p_holder bytea, p_until bigint, p_token bigint, p_granted bigint, p_owner text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v completions;
    v_ahead bigint := micros() + 3600000000;
BEGIN
    PERFORM 1 FROM locks WHERE key = p_key AND holder = p_holder AND ends > micros() FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    SELECT * INTO v FROM completions WHERE key = p_key FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO completions VALUES (p_key, p_until, p_token, p_granted, p_owner);
    ELSIF (coalesce(v.granted, 0) > v_ahead) <> (coalesce(p_granted, 0) > v_ahead) THEN
        IF coalesce(v.granted, 0) > v_ahead THEN
            UPDATE completions SET until = p_until, token = p_token, granted = p_granted, owner = p_owner WHERE key = p_key;
        END IF;
    ELSIF p_token > v.token THEN
        UPDATE completions SET until = greatest(v.until, p_until), token = p_token, granted = p_granted, owner = p_owner
         WHERE key = p_key;
    ELSE
        UPDATE completions SET until = greatest(v.until, p_until) WHERE key = p_key;
    END IF;
    RETURN true;
END $$;

-- 0 cleared, 1 absent, 2 changed.
CREATE OR REPLACE FUNCTION clear_completion_1(p_key text, p_token bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM completions WHERE key = p_key AND token <= p_token;
    IF FOUND THEN RETURN 0; END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM completions WHERE key = p_key) THEN 2 ELSE 1 END;
END $$;

-- For transactions of users: the lock of a key until this transaction ends, and its token; NULL while a client holds the key or waits
-- for it. Others wait for the row, so set a lock_timeout.
CREATE OR REPLACE FUNCTION lock_in(key text, OUT token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT 1 FROM locks l WHERE l.key = lock_in.key) THEN PERFORM make(lock_in.key); END IF;
    UPDATE locks l SET fence = greatest(l.fence + 1, micros()), since = micros()
     WHERE l.key = lock_in.key AND l.waiting = 0 AND l.ends <= micros() RETURNING l.fence INTO token;
END $$;

-- For transactions of users: refuses a token that is smaller than one that this receiver has seen.
CREATE OR REPLACE FUNCTION pass(name text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO gates AS g VALUES (pass.name, pass.token)
        ON CONFLICT ON CONSTRAINT gates_pkey DO UPDATE SET fence = excluded.fence WHERE g.fence <= excluded.fence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale fencing token % for %', pass.token, pass.name USING ERRCODE = 'FL001';
    END IF;
END $$;
