-- The first version of the functions. A change that an old client would notice has a new name with the next number, and stays
-- beside the old one. All names of ours are qualified, and no other schema is searched: who may create functions, operators or types in
-- this one must not get the rights of who calls. Locks are taken in one order: the row of the key, then its waiters; several keys in the order of "C".

CREATE OR REPLACE FUNCTION fencelock.micros() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint
$$;

-- What this transaction has written may be lost in a crash: a release, or a place in a queue.
CREATE OR REPLACE FUNCTION fencelock.commit_lazily() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- Identifies the cluster, and what it has written since the last failover. The checkpoint of a server that was just promoted still has
-- the old timeline. Some services have no WAL functions: there, a failover loses no commit.
CREATE OR REPLACE FUNCTION fencelock.run() RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_run text := (SELECT system_identifier || '/' FROM pg_control_system());
BEGIN
    RETURN v_run || left(pg_walfile_name(pg_current_wal_lsn()), 8);
EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state THEN
    RETURN v_run;
END $$;

-- What a new connection needs to know. A server that may have lost grants begins its quarantine here. It has one if it ever was asked
-- for: always, or because its standbys may lack the last commits.
CREATE OR REPLACE FUNCTION fencelock.hello_1(
    p_span bigint, p_always boolean, OUT o_layout int, OUT o_run text, OUT o_span bigint, OUT o_rest bigint, OUT o_async boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_span bigint := 0;
BEGIN
    SELECT layout INTO o_layout FROM fencelock.meta;
    o_run := fencelock.run();
    -- Who only reads the log never becomes the server; a subscriber of our tables may.
    o_async := (current_setting('synchronous_standby_names') = '' OR current_setting('synchronous_commit') = 'local') AND EXISTS (
        SELECT FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
         WHERE coalesce(r.application_name, '') NOT IN ('pg_receivewal', 'pg_basebackup')
           AND (s.slot_type IS DISTINCT FROM 'logical' OR s.plugin = 'pgoutput' AND EXISTS (
               SELECT FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
                WHERE n.oid = to_regnamespace('fencelock') AND p.tablename = 'locks')));
    IF p_always OR o_async THEN v_span := p_span; END IF;
    UPDATE fencelock.meta SET run = o_run, span = coalesce(nullif(span, 0), v_span),
           until = CASE WHEN run <> o_run THEN fencelock.micros() + coalesce(nullif(span, 0), v_span) ELSE until END
     WHERE run IS NULL OR (greatest(span, v_span) > 0 AND (run <> o_run OR span = 0));
    SELECT span, greatest(until - fencelock.micros(), 0) INTO o_span, o_rest FROM fencelock.meta;
END $$;

-- For `fencelock init`: the span of the URL counts from now on, also for a quarantine under way. Trust ends it.
CREATE OR REPLACE FUNCTION fencelock.guard_1(p_span bigint, p_always boolean, p_trust boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM fencelock.hello_1(p_span, p_always);
    UPDATE fencelock.meta SET until = CASE WHEN p_trust THEN 0 WHEN until > fencelock.micros() THEN until + greatest(p_span - span, 0) ELSE until END,
           span = CASE WHEN p_always THEN p_span ELSE span END WHERE p_always OR p_trust;
    RETURN (SELECT greatest(until - fencelock.micros(), 0) FROM fencelock.meta);
END $$;

-- Behind a pooler, another server may answer than before.
CREATE OR REPLACE FUNCTION fencelock.check_1(p_run text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF fencelock.run() <> p_run THEN RAISE EXCEPTION 'the pooler has another server than before' USING ERRCODE = 'FL003'; END IF;
END $$;

-- Removes some old rows from a random part of the table.
CREATE OR REPLACE FUNCTION fencelock.purge(p_percent float4, p_before bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_top bigint;
    v_gone int;
BEGIN
    WITH old AS (
        SELECT key FROM fencelock.locks TABLESAMPLE SYSTEM (p_percent) WHERE waiting = 0 AND greatest(since, ends) < p_before
        LIMIT 200 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM fencelock.locks USING old WHERE locks.key = old.key RETURNING locks.key, locks.fence
    ), ended AS (
        DELETE FROM fencelock.waiters USING gone WHERE waiters.key = gone.key
    )
    SELECT max(fence), count(*) INTO v_top, v_gone FROM gone;
    IF v_gone > 0 THEN UPDATE fencelock.meta SET floor = greatest(floor, v_top); END IF;
    DELETE FROM fencelock.completions WHERE key IN (
        SELECT key FROM fencelock.completions TABLESAMPLE SYSTEM (p_percent) WHERE until < p_before LIMIT 200 FOR UPDATE SKIP LOCKED
    );
    RETURN v_gone;
END $$;

-- Makes the row of a key. The floor is read after the row, which waits for a purge of the same key.
CREATE OR REPLACE FUNCTION fencelock.make(p_key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fencelock.locks (key, since) VALUES (p_key, fencelock.micros()) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE fencelock.locks SET fence = greatest(fence, (SELECT floor FROM fencelock.meta)) WHERE key = p_key;
    END IF;
END $$;

-- Writes the row of a key that the caller has locked, if it has changed.
CREATE OR REPLACE FUNCTION fencelock.save(v fencelock.locks) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE fencelock.locks l SET fence = v.fence, ends = v.ends, since = v.since, ttl = v.ttl, head = v.head, waiting = v.waiting,
           count = v.count, is_handed = v.is_handed, holder = v.holder, owner = v.owner, channel = v.channel
     WHERE l.key = v.key AND l IS DISTINCT FROM v;
END $$;

-- Writes the row of a client that waits, or holds the key together with others. It may have one of a hold that is over.
CREATE OR REPLACE FUNCTION fencelock.put(w fencelock.waiters) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fencelock.waiters (key, ticket, holder, owner, ttl, count, channel, permits, weight, alive_till, fence, since, is_handed)
    VALUES (w.key, w.ticket, w.holder, w.owner, w.ttl, w.count, w.channel, w.permits, w.weight, w.alive_till, w.fence, w.since, w.is_handed)
    ON CONFLICT (key, holder) DO UPDATE
       SET (ticket, owner, ttl, count, channel, permits, weight, alive_till, fence, since, is_handed) = ROW (excluded.ticket,
            excluded.owner, excluded.ttl, excluded.count, excluded.channel, excluded.permits, excluded.weight, excluded.alive_till,
            excluded.fence, excluded.since, excluded.is_handed);
END $$;

-- The row of a key that the caller has locked, with the end of the last hold that is left. The rows of holds that are over go: if the
-- clock of the server was ahead, they must not come back after the next holder.
CREATE OR REPLACE FUNCTION fencelock.settled(INOUT v fencelock.locks, p_now bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF v.holder IS NULL AND v.ends > 0 THEN
        DELETE FROM fencelock.waiters WHERE key = v.key AND ticket <= v.head AND alive_till <= p_now;
        SELECT coalesce(max(alive_till), 0) INTO v.ends FROM fencelock.waiters WHERE key = v.key AND ticket <= v.head;
    END IF;
END $$;

-- Who holds a key: 16 of them, how many there are, since when, and when the first hold ends.
CREATE OR REPLACE FUNCTION fencelock.held(
    v fencelock.locks, p_now bigint, OUT o_holders bytea[], OUT o_owners text[], OUT o_number int, OUT o_since bigint, OUT o_ends bigint
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    o_number := 0;
    IF v.ends > p_now AND v.holder IS NOT NULL THEN
        SELECT ARRAY[v.holder], ARRAY[v.owner], 1, v.since, v.ends INTO o_holders, o_owners, o_number, o_since, o_ends;
    ELSIF v.ends > p_now THEN
        SELECT (array_agg(holder ORDER BY ticket))[:16], (array_agg(owner ORDER BY ticket))[:16], count(*), min(since), min(alive_till)
          INTO o_holders, o_owners, o_number, o_since, o_ends
          FROM fencelock.waiters WHERE key = v.key AND ticket <= v.head AND alive_till > p_now;
    END IF;
END $$;

-- Whether a claim fits together with the holders of a settled row: the only difference between the modes.
CREATE OR REPLACE FUNCTION fencelock.fits(v fencelock.locks, p_permits int, p_weight int, p_now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF v.ends <= p_now THEN RETURN true; END IF;
    IF v.holder IS NOT NULL OR p_permits < 0 THEN RETURN false; END IF;
    RETURN (SELECT bool_and(permits = p_permits) AND (p_permits = 0 OR sum(weight) + p_weight <= p_permits)
              FROM fencelock.waiters WHERE key = v.key AND ticket <= v.head);
END $$;

-- Grants a key for this time.
CREATE OR REPLACE FUNCTION fencelock.granted(INOUT v fencelock.locks, w fencelock.waiters, p_now bigint, p_ttl bigint, p_handed boolean) LANGUAGE plpgsql AS $$
BEGIN
    v.count := CASE WHEN v.fence = 0 THEN 1 ELSE greatest(least(w.count, p_now - v.fence), 1) END;
    v.fence := greatest(v.fence + 1, p_now);
    v.since := p_now;
    v.ttl := p_ttl;
    v.ends := greatest(v.ends, p_now + p_ttl);
    v.head := greatest(v.head, w.ticket);
    v.is_handed := p_handed;
    v.holder := CASE WHEN w.permits < 0 THEN w.holder END;
    v.owner := w.owner;
    v.channel := w.channel;
    IF w.permits >= 0 THEN
        w.fence := v.fence;
        w.count := v.count;
        w.since := p_now;
        w.ttl := p_ttl;
        w.alive_till := p_now + p_ttl;
        w.is_handed := p_handed;
        PERFORM fencelock.put(w);
    END IF;
END $$;

-- The lease of a holder lasts at least this long from now on. Without a hold, there is no token.
CREATE OR REPLACE FUNCTION fencelock.extended(INOUT v fencelock.locks, p_holder bytea, p_ttl bigint, p_now bigint, OUT o_fence bigint, OUT o_count int)
LANGUAGE plpgsql AS $$
DECLARE
    v_till bigint;
BEGIN
    IF v.ends > p_now AND v.holder = p_holder THEN
        v.ends := greatest(v.ends, p_now + p_ttl);
        v.ttl := p_ttl;
        v.is_handed := false;
        o_fence := v.fence;
        o_count := v.count;
    ELSIF v.ends > p_now AND v.holder IS NULL THEN
        UPDATE fencelock.waiters SET alive_till = greatest(alive_till, p_now + p_ttl), ttl = p_ttl, is_handed = false
         WHERE key = v.key AND holder = p_holder AND ticket <= v.head AND alive_till > p_now
        RETURNING fence, count, alive_till INTO o_fence, o_count, v_till;
        v.ends := greatest(v.ends, v_till);
    END IF;
END $$;

-- Hands a key, whose row is settled, to the first waiters that fit. After 32 it stops, and `o_more` says so.
CREATE OR REPLACE FUNCTION fencelock.advance(INOUT v fencelock.locks, p_now bigint, OUT o_handed int, OUT o_more boolean) LANGUAGE plpgsql AS $$
DECLARE
    w fencelock.waiters;
    v_left int := 32;
BEGIN
    o_handed := 0;
    o_more := false;
    WHILE v.waiting > 0 AND (v.ends <= p_now OR v.holder IS NULL) LOOP
        -- A quarantine.
        EXIT WHEN v_left = 32 AND EXISTS (SELECT FROM fencelock.meta WHERE until > p_now);
        -- With the row lock, this is its newest version: a poll may have come since.
        SELECT * INTO w FROM fencelock.waiters WHERE key = v.key AND ticket > v.head ORDER BY ticket LIMIT 1 FOR UPDATE;
        IF NOT FOUND THEN
            v.waiting := 0;
            EXIT;
        END IF;
        EXIT WHEN w.alive_till > p_now AND NOT fencelock.fits(v, w.permits, w.weight, p_now);
        o_more := v_left = 0;
        EXIT WHEN o_more;
        v_left := v_left - 1;
        v.waiting := v.waiting - 1;
        v.head := w.ticket;
        IF w.alive_till <= p_now OR w.permits < 0 THEN DELETE FROM fencelock.waiters WHERE key = v.key AND ticket = w.ticket; END IF;
        IF w.alive_till > p_now THEN
            -- Three seconds, until the waiter confirms.
            v := fencelock.granted(v, w, p_now, least(w.ttl, 3000000), true);
            o_handed := o_handed + 1;
        END IF;
    END LOOP;
END $$;

-- Offers a key whose row the caller has locked to the queue, and writes the row.
CREATE OR REPLACE FUNCTION fencelock.offer(v fencelock.locks, p_now bigint, OUT o_handed boolean, OUT o_more boolean) LANGUAGE plpgsql AS $$
DECLARE
    a record;
BEGIN
    a := fencelock.advance(fencelock.settled(v, p_now), p_now);
    PERFORM fencelock.save(a.v);
    o_handed := a.o_handed > 0;
    o_more := a.o_more;
END $$;

-- p_intent: 0 try, 1 enqueue, 2 poll; p_permits as in waiters. o_answer: 0 granted, 1 busy, 2 queued, 3 gone, 4 ask again: not all
-- waiters in front were looked at, 5 conflict with this mode.
CREATE OR REPLACE FUNCTION fencelock.acquire_1(
    p_key text, p_holder bytea, p_owner text, p_ttl bigint, p_intent int, p_count int, p_channel text, p_permits int, p_weight int,
    OUT o_answer int, OUT o_fence bigint, OUT o_count int, OUT o_ahead int, OUT o_now bigint, OUT o_holders bytea[], OUT o_owners text[],
    OUT o_number int, OUT o_since bigint, OUT o_ends bigint, OUT o_permits int, OUT o_weight int, OUT o_handed boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.locks;
    -- This client.
    w fencelock.waiters;
    x record;
    a record;
    v_more boolean := false;
    v_is_new boolean := false;
BEGIN
    o_handed := false;
    o_now := fencelock.micros();
    IF p_permits < 0 AND p_intent <> 2 THEN
        UPDATE fencelock.locks SET holder = p_holder, owner = p_owner, channel = p_channel, since = o_now, ttl = p_ttl, ends = o_now + p_ttl,
               fence = greatest(fence + 1, o_now),
               count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least(p_count, o_now - fence), 1) END
         WHERE key = p_key AND waiting = 0 AND ends <= o_now AND holder IS NOT NULL
        RETURNING fence, count INTO o_fence, o_count;
        IF FOUND THEN
            o_answer := 0;
            RETURN;
        END IF;
    ELSIF p_permits < 0 THEN
        -- A poll while another client holds the key writes nothing but its own row.
        SELECT * INTO v FROM fencelock.locks WHERE key = p_key;
        IF v.ends > o_now AND v.holder <> p_holder THEN
            UPDATE fencelock.waiters SET alive_till = o_now + 3000000, count = p_count, permits = -1, weight = 0
             WHERE key = p_key AND holder = p_holder AND ticket > v.head RETURNING * INTO w;
            o_answer := 2;
        END IF;
    END IF;
    IF w.ticket IS NULL THEN
        SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
        IF NOT FOUND AND p_intent = 2 THEN
            o_answer := 3;
            RETURN;
        END IF;
        -- Again if a purge has removed the row meanwhile.
        WHILE v.key IS NULL LOOP
            PERFORM fencelock.make(p_key);
            v_is_new := true;
            SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
        END LOOP;
        -- The lock may have been waited for.
        o_now := fencelock.micros();
        v := fencelock.settled(v, o_now);
        x := fencelock.extended(v, p_holder, p_ttl, o_now);
        v := x.v;
        -- The client may have used some tokens before it asks again, but none after the last.
        o_fence := x.o_fence;
        o_count := 1;
        IF o_fence IS NULL THEN
            IF v.waiting > 0 THEN
                -- Its semaphore may have been resized, although its client still names the old limit.
                UPDATE fencelock.waiters SET alive_till = o_now + 3000000, count = p_count, weight = p_weight,
                       permits = CASE WHEN p_permits > 0 AND p_weight <= permits THEN permits ELSE p_permits END
                 WHERE key = p_key AND holder = p_holder AND ticket > v.head RETURNING * INTO w;
            END IF;
            IF p_permits >= 0 THEN
                SELECT permits, weight INTO o_permits, o_weight FROM fencelock.waiters
                 WHERE key = p_key AND holder <> p_holder AND alive_till > o_now AND permits >= 0
                   AND permits <> coalesce(w.permits, p_permits) AND (ticket > v.head OR v.holder IS NULL) ORDER BY ticket LIMIT 1;
                IF FOUND AND w.ticket IS NOT NULL THEN
                    DELETE FROM fencelock.waiters WHERE key = p_key AND ticket = w.ticket;
                    v.waiting := v.waiting - 1;
                END IF;
            END IF;
            a := fencelock.advance(v, o_now);
            x := fencelock.extended(a.v, p_holder, p_ttl, o_now);
            v := x.v;
            v_more := a.o_more;
            o_handed := a.o_handed > (x.o_fence IS NOT NULL)::int;
            IF x.o_fence IS NOT NULL THEN
                o_fence := x.o_fence;
                o_count := x.o_count;
            ELSIF o_permits IS NULL AND p_intent <> 2 AND v.waiting = 0 AND fencelock.fits(v, p_permits, p_weight, o_now) THEN
                -- Without waiters, all tickets are up to that of the head.
                w := (p_key, v.head + 1, p_holder, p_owner, p_ttl, p_count, p_channel, p_permits, p_weight, 0, 0, 0, false);
                v := fencelock.granted(v, w, o_now, p_ttl, false);
                o_fence := v.fence;
                o_count := v.count;
            END IF;
        END IF;
        o_answer := CASE WHEN o_fence IS NOT NULL THEN 0 WHEN o_permits IS NOT NULL THEN 5 WHEN v_more THEN 4
            WHEN v.ends <= o_now OR (p_intent = 2 AND w.ticket IS NULL) THEN 3 ELSE least(p_intent + 1, 2) END;
        IF o_answer = 2 AND w.ticket IS NULL THEN
            -- No sequence: those are not replicated logically.
            w := (p_key, (SELECT greatest(v.head, max(ticket)) + 1 FROM fencelock.waiters WHERE key = p_key), p_holder, p_owner, p_ttl,
                  p_count, p_channel, p_permits, p_weight, o_now + 3000000, NULL, o_now, false);
            PERFORM fencelock.put(w);
            v.waiting := v.waiting + 1;
        END IF;
        PERFORM fencelock.save(v);
    END IF;
    IF o_answer = 0 THEN
        IF v_is_new AND random() < 1.0 / 64 THEN
            -- Each new key looks at about as many rows as fit on one page, and a day is longer than any lease.
            PERFORM fencelock.purge((SELECT least(100, 6400.0 / greatest(pg_relation_size(tableoid) / 8192, 64))
                              FROM fencelock.locks WHERE key = p_key)::float4, o_now - 86400000000);
        END IF;
        RETURN;
    END IF;
    o_fence := v.fence;
    SELECT count(*) INTO o_ahead FROM fencelock.waiters WHERE key = p_key AND ticket > v.head AND ticket < w.ticket;
    SELECT * INTO o_holders, o_owners, o_number, o_since, o_ends FROM fencelock.held(v, o_now);
    IF NOT o_handed THEN PERFORM fencelock.commit_lazily(); END IF;
END $$;

-- o_answer: 0 released, 1 absent, 2 taken by other clients.
CREATE OR REPLACE FUNCTION fencelock.release_1(
    p_key text, p_holder bytea, OUT o_answer int, OUT o_handed boolean, OUT o_more boolean, OUT o_holders bytea[], OUT o_owners text[],
    OUT o_number int
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.locks;
    w fencelock.waiters;
    v_now bigint := fencelock.micros();
BEGIN
    o_handed := false;
    o_more := false;
    -- The rest stays as it was: then the log of the server has only what has changed.
    UPDATE fencelock.locks SET is_handed = false, ends = 0
     WHERE key = p_key AND holder = p_holder AND waiting = 0 AND ends > v_now;
    IF FOUND THEN
        o_answer := 0;
        PERFORM fencelock.commit_lazily();
        RETURN;
    END IF;
    o_answer := 1;
    SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    v_now := fencelock.micros();
    DELETE FROM fencelock.waiters WHERE key = p_key AND holder = p_holder RETURNING * INTO w;
    IF w.ticket > v.head THEN
        v.waiting := v.waiting - 1;
    ELSIF v.holder IS NULL AND w.alive_till > v_now THEN
        o_answer := 0;
    ELSIF v.holder = p_holder AND v.ends > v_now THEN
        o_answer := 0;
        v.ends := 0;
        v.is_handed := false;
    END IF;
    v := fencelock.settled(v, v_now);
    IF o_answer = 1 THEN
        SELECT h.o_holders, h.o_owners, h.o_number INTO o_holders, o_owners, o_number FROM fencelock.held(v, v_now) AS h;
        IF o_number > 0 THEN o_answer := 2; END IF;
    END IF;
    SELECT * INTO o_handed, o_more FROM fencelock.offer(v, v_now);
    IF NOT o_handed THEN PERFORM fencelock.commit_lazily(); END IF;
END $$;

-- Turns an exclusive hold into a shared one, also again. No token: it has neither.
CREATE OR REPLACE FUNCTION fencelock.downgrade_1(
    p_key text, p_holder bytea, p_ttl bigint, OUT o_fence bigint, OUT o_handed boolean, OUT o_more boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.locks;
    w fencelock.waiters;
    v_now bigint;
BEGIN
    SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
    v_now := fencelock.micros();
    IF v.holder = p_holder AND v.ends > v_now THEN
        -- In front of all that wait.
        w := (p_key, (SELECT least(min(ticket), 0) - 1 FROM fencelock.waiters WHERE key = p_key), p_holder, v.owner, p_ttl, 1, v.channel,
              0, 0, 0, 0, 0, false);
        v := fencelock.granted(v, w, v_now, greatest(v.ends - v_now, p_ttl), false);
    END IF;
    IF EXISTS (SELECT FROM fencelock.waiters WHERE key = p_key AND holder = p_holder AND ticket <= v.head AND permits = 0) THEN
        SELECT x.o_fence INTO o_fence FROM fencelock.extended(v, p_holder, p_ttl, v_now) AS x;
    END IF;
    SELECT * INTO o_handed, o_more FROM fencelock.offer(v, v_now);
END $$;

-- Changes the limit of a semaphore in use. Without one, there was no limit before.
CREATE OR REPLACE FUNCTION fencelock.resize_1(
    p_key text, p_limit int, OUT o_before int, OUT o_handed boolean, OUT o_more boolean, OUT o_used bigint, OUT o_number int
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.locks;
    v_now bigint;
    v_gone int;
BEGIN
    SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
    v_now := fencelock.micros();
    SELECT max(permits) INTO o_before FROM fencelock.holds WHERE key = p_key AND ends > v_now AND permits > 0;
    -- Those that can never fit.
    DELETE FROM fencelock.waiters WHERE key = p_key AND ticket > v.head AND permits = o_before AND weight > p_limit;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v.waiting := v.waiting - v_gone;
    UPDATE fencelock.waiters SET permits = p_limit WHERE key = p_key AND permits = o_before;
    SELECT * INTO o_handed, o_more FROM fencelock.offer(v, v_now);
    SELECT sum(weight), count(*) INTO o_used, o_number FROM fencelock.holds WHERE key = p_key AND ends > v_now;
END $$;

-- Tells the holders of a key that was handed over. It is a transaction of its own, behind the one that hands over: with a
-- notification, commits of the whole cluster wait for each other.
CREATE OR REPLACE FUNCTION fencelock.tell_1(p_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify(channel, format(E'1 %s %s %s %s\t%s', encode(holder, 'hex'), fence, count, (ends - since) / 1000, key))
       FROM fencelock.holds WHERE key = p_key AND is_handed AND ends > fencelock.micros();
END $$;

-- The hand-offs of a client that gets no notifications.
CREATE OR REPLACE FUNCTION fencelock.handed_1(p_keys text[], p_holders bytea[])
RETURNS TABLE (o_key text, o_holder bytea, o_fence bigint, o_count int, o_ttl bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.key, l.holder, l.fence, l.count, l.ends - l.since
      FROM unnest(p_keys, p_holders) AS a (key, holder) JOIN fencelock.holds l ON l.key = a.key AND l.holder = a.holder AND l.is_handed
$$;

-- When a lease ends that is renewed. One that is longer by more than a second was granted before the clock was set back.
CREATE OR REPLACE FUNCTION fencelock.renewed(p_ends bigint, p_now bigint, p_ttl bigint, p_assumed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_ends > p_now + p_assumed + 1000000 THEN p_now + p_assumed ELSE greatest(p_ends, p_now + p_ttl) END
$$;

-- o_answer: 0 renewed, 1 absent, 2 taken by other clients. The rows are locked in the order of the keys, so that two batches do not
-- wait for each other; what another client holds alone is not locked.
CREATE OR REPLACE FUNCTION fencelock.renew_1(p_keys text[], p_holders bytea[], p_ttls bigint[], p_assumed bigint[])
RETURNS TABLE (o_answer int, o_waiting int, o_holders bytea[], o_owners text[], o_number int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now bigint := fencelock.micros();
BEGIN
    PERFORM 1 FROM fencelock.locks l JOIN unnest(p_keys, p_holders) AS a (key, holder) ON l.key = a.key AND coalesce(l.holder, a.holder) = a.holder
      WHERE l.ends > v_now ORDER BY l.key FOR UPDATE OF l;
    v_now := fencelock.micros();
    RETURN QUERY
    WITH asked AS (
        SELECT * FROM unnest(p_keys, p_holders, p_ttls, p_assumed) WITH ORDINALITY AS a (key, holder, ttl, assumed, nth)
    ), leases AS (
        SELECT key, holder, max(ttl) AS ttl, max(greatest(ttl, assumed)) AS assumed FROM asked GROUP BY key, holder
    ), alone AS (
        UPDATE fencelock.locks l SET is_handed = false, ttl = a.ttl, ends = fencelock.renewed(l.ends, v_now, a.ttl, a.assumed)
          FROM leases a WHERE l.key = a.key AND l.holder = a.holder AND l.ends > v_now
        RETURNING l.key, l.holder, l.waiting
    ), together AS (
        UPDATE fencelock.waiters w SET is_handed = false, ttl = a.ttl, alive_till = fencelock.renewed(w.alive_till, v_now, a.ttl, a.assumed)
          FROM leases a JOIN fencelock.locks l ON l.key = a.key AND l.holder IS NULL
         WHERE w.key = a.key AND w.holder = a.holder AND w.ticket <= l.head AND w.alive_till > v_now
        RETURNING w.key, w.holder, l.waiting, w.alive_till
    ), later AS (
        UPDATE fencelock.locks l SET ends = t.ends FROM (SELECT key, max(alive_till) AS ends FROM together GROUP BY key) t
         WHERE l.key = t.key AND l.ends < t.ends
    ), done AS (
        SELECT key, holder, waiting FROM alone UNION ALL SELECT key, holder, waiting FROM together
    )
    SELECT CASE WHEN d.key IS NOT NULL THEN 0 WHEN h.o_number > 0 THEN 2 ELSE 1 END, d.waiting, h.o_holders, h.o_owners, h.o_number
      FROM asked a LEFT JOIN done d ON d.key = a.key AND d.holder = a.holder LEFT JOIN fencelock.locks l ON l.key = a.key
           -- Only for those that are not renewed.
           LEFT JOIN LATERAL (SELECT * FROM fencelock.held(l, v_now) WHERE d.key IS NULL OFFSET 0) h ON true
     ORDER BY a.nth;
END $$;

-- Which of these rows somebody else has locked.
CREATE OR REPLACE FUNCTION fencelock.locked_1(p_keys text[]) RETURNS text[]
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array(SELECT key FROM fencelock.locks WHERE key = ANY (p_keys)
                 EXCEPT SELECT key FROM (SELECT key FROM fencelock.locks WHERE key = ANY (p_keys) FOR UPDATE SKIP LOCKED) AS free)
$$;

-- All holds, or those of one key, and behind them the first waiters, which have no token: one of each key, or 100 of the one.
CREATE OR REPLACE FUNCTION fencelock.list_1(p_key text) RETURNS TABLE (
    o_key text, o_holder bytea, o_owner text, o_fence bigint, o_waiting int, o_left bigint, o_age bigint, o_permits int, o_weight int,
    o_ttl bigint
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now bigint := fencelock.micros();
BEGIN
    RETURN QUERY SELECT key, holder, owner, fence, waiting, ends - v_now, v_now - since, permits, weight, ttl FROM (
        SELECT key, ticket, holder, owner, fence, waiting, ends, since, permits, weight, ttl FROM fencelock.holds
        UNION ALL
        SELECT l.key, w.ticket, w.holder, w.owner, NULL, l.waiting, w.alive_till, w.since, w.permits, w.weight, w.ttl
          FROM fencelock.locks l CROSS JOIN LATERAL (
              SELECT * FROM fencelock.waiters WHERE key = l.key AND ticket > l.head AND alive_till > v_now ORDER BY ticket
               LIMIT CASE WHEN p_key IS NULL THEN 1 ELSE 100 END
          ) w WHERE l.waiting > 0
    ) AS found WHERE (p_key IS NULL OR key = p_key) AND ends > v_now ORDER BY key, ticket LIMIT 100001;
END $$;

CREATE OR REPLACE FUNCTION fencelock.evict_1(p_key text, p_holders bytea[], OUT o_evicted boolean, OUT o_handed boolean, OUT o_more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.locks;
    v_now bigint;
BEGIN
    SELECT * INTO v FROM fencelock.locks WHERE key = p_key FOR UPDATE;
    v_now := fencelock.micros();
    PERFORM pg_notify(channel, E'1\t' || key) FROM fencelock.holds WHERE key = p_key AND holder = ANY (p_holders) AND ends > v_now;
    o_evicted := FOUND;
    IF v.holder = ANY (p_holders) THEN
        v.ends := 0;
        v.is_handed := false;
    END IF;
    DELETE FROM fencelock.waiters WHERE key = p_key AND holder = ANY (p_holders) AND ticket <= v.head;
    SELECT * INTO o_handed, o_more FROM fencelock.offer(v, v_now);
END $$;

-- Removes the row of a free key before its time.
CREATE OR REPLACE FUNCTION fencelock.forget_1(p_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_fence bigint;
BEGIN
    DELETE FROM fencelock.locks WHERE key = p_key AND waiting = 0 AND ends <= fencelock.micros() RETURNING fence INTO v_fence;
    IF FOUND THEN
        UPDATE fencelock.meta SET floor = greatest(floor, v_fence);
        DELETE FROM fencelock.waiters WHERE key = p_key;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION fencelock.read_completion_1(p_key text, OUT o_now bigint, OUT o_until bigint, OUT o_token bigint, OUT o_granted bigint, OUT o_owner text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    o_now := fencelock.micros();
    SELECT until, token, granted, owner INTO o_until, o_token, o_granted, o_owner FROM fencelock.completions WHERE key = p_key;
END $$;

-- Merges: the later run, until the later end. A run that lies more than an hour in the future gives way.
CREATE OR REPLACE FUNCTION fencelock.write_completion_1(
    p_key text, p_holder bytea, p_until bigint, p_token bigint, p_granted bigint, p_owner text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v fencelock.completions;
    v_ahead bigint := fencelock.micros() + 3600000000;
BEGIN
    PERFORM 1 FROM fencelock.locks WHERE key = p_key AND holder = p_holder AND ends > fencelock.micros() FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    SELECT * INTO v FROM fencelock.completions WHERE key = p_key FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO fencelock.completions VALUES (p_key, p_until, p_token, p_granted, p_owner);
    ELSIF (v.granted > v_ahead) <> (p_granted > v_ahead) THEN
        IF v.granted > v_ahead THEN
            UPDATE fencelock.completions SET until = p_until, token = p_token, granted = p_granted, owner = p_owner WHERE key = p_key;
        END IF;
    ELSIF p_token > v.token THEN
        UPDATE fencelock.completions SET until = greatest(v.until, p_until), token = p_token, granted = p_granted, owner = p_owner
         WHERE key = p_key;
    ELSE
        UPDATE fencelock.completions SET until = greatest(v.until, p_until) WHERE key = p_key;
    END IF;
    RETURN true;
END $$;

-- 0 cleared, 1 absent, 2 changed.
CREATE OR REPLACE FUNCTION fencelock.clear_completion_1(p_key text, p_token bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM fencelock.completions WHERE key = p_key AND token <= p_token;
    IF FOUND THEN RETURN 0; END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM fencelock.completions WHERE key = p_key) THEN 2 ELSE 1 END;
END $$;

-- For transactions of users: the lock of a key until this transaction ends, and its token; NULL while a client holds the key or waits
-- for it, and in a quarantine. Others wait for the row, so set a lock_timeout.
CREATE OR REPLACE FUNCTION fencelock.lock_in(key text, OUT token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    -- A row that was changed while the update waited for it stays locked, even if it does not match any more: until this is rolled back.
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM fencelock.locks l WHERE l.key = lock_in.key) THEN PERFORM fencelock.make(lock_in.key); END IF;
        UPDATE fencelock.locks l SET fence = greatest(l.fence + 1, fencelock.micros()), since = fencelock.micros(), ends = 0
         WHERE l.key = lock_in.key AND l.waiting = 0 AND l.ends <= fencelock.micros() AND NOT EXISTS (SELECT FROM fencelock.meta WHERE until > fencelock.micros())
        RETURNING l.fence INTO token;
        IF NOT FOUND THEN RAISE SQLSTATE 'FL005'; END IF;
        -- As in `settled`.
        DELETE FROM fencelock.waiters w WHERE w.key = lock_in.key;
    EXCEPTION WHEN SQLSTATE 'FL005' THEN
        token := NULL;
    END;
END $$;

-- For transactions of users: refuses a token that is smaller than one that this receiver has seen.
CREATE OR REPLACE FUNCTION fencelock.pass(name text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    -- The greatest token that there is. A greater number would close the gate for good.
    IF pass.token NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION 'no fencing token: % for %', pass.token, pass.name USING ERRCODE = '22003';
    END IF;
    INSERT INTO fencelock.gates AS g VALUES (pass.name, pass.token)
        ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE g.fence <= excluded.fence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale fencing token % for %', pass.token, pass.name USING ERRCODE = 'FL001';
    END IF;
END $$;

-- At first, only the role that makes a function may call it. For those that were there, that stays as it is.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace('fencelock') AND xmin = pg_current_xact_id()::xid
        AND oid::text <> ALL (string_to_array(current_setting('fencelock_init.known'), ' ')) LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function);
    END LOOP;
END $$;
