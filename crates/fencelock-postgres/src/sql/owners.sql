-- Refuses what gives another role the rights of those who use our tables and functions, and in a schema without ours all that has the
-- name of one. It runs before the rest, and again at the end: then nobody has made something in between.
DO $$
DECLARE
    v_schema oid := to_regnamespace('fencelock');
    v_tables text[] := '{meta, locks, waiters, holds, completions, gates}';
    v_role text := current_user;
    v_owner oid;
    v_is_new boolean := NOT EXISTS (
        SELECT FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
         WHERE relnamespace = v_schema AND relname = 'meta' AND attname = 'layout'
    );
    v_what text;
    v_whose text;
BEGIN
    -- Nobody logs in as pg_database_owner.
    SELECT CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END INTO v_owner
      FROM pg_namespace n, pg_database d WHERE n.oid = v_schema AND datname = current_database();
    SELECT pg_describe_object(class, found.oid, 0), rolname INTO v_what, v_whose FROM (
        SELECT 'pg_class'::regclass AS class, oid, relowner AS owner FROM pg_class WHERE relnamespace = v_schema AND relname = ANY (v_tables)
        UNION ALL
        SELECT 'pg_type'::regclass, oid, typowner FROM pg_type WHERE typnamespace = v_schema AND typname = ANY (v_tables) AND typrelid = 0
        UNION ALL
        SELECT 'pg_proc'::regclass, oid, proowner FROM pg_proc WHERE pronamespace = v_schema AND proname = ANY ('{FUNCTIONS}')
        UNION ALL
        SELECT 'pg_trigger'::regclass, t.oid, proowner FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid JOIN pg_proc p ON p.oid = tgfoid
         WHERE relnamespace = v_schema AND relname = ANY (v_tables) AND NOT tgisinternal
    ) AS found JOIN pg_roles r ON r.oid = owner
     -- A superuser is a member of every role.
     WHERE v_is_new OR NOT (rolname = v_role OR pg_has_role(owner, v_owner, 'MEMBER')) ORDER BY class, found.oid LIMIT 1;
    IF v_what IS NULL THEN RETURN; END IF;
    IF v_is_new THEN
        RAISE EXCEPTION '% belongs to %, and is not one of fencelock: use another schema, as in schema=NAME, or drop it',
            v_what, v_whose USING ERRCODE = 'FL004';
    END IF;
    RAISE EXCEPTION '% belongs to %, who is neither a superuser, nor this role (%), nor a member of the owner of the schema, and could get '
        'the rights of its callers: use that role, or another schema, or drop it', v_what, v_whose, v_role USING ERRCODE = 'FL004';
END $$;
