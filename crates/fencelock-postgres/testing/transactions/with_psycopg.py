"""python with_psycopg.py PORT

Transactions that check a fencing token, and one that is a lock. tests/transactions.rs tries them.
"""

import sys

import psycopg


def write_behind_gate(connection, token, pieces):
    """Returns whether the token was not older than that of another writer, which is FL001."""
    try:
        with connection.transaction():
            connection.execute("SELECT fencelock.pass('stock', %s)", [token])
            connection.execute("UPDATE stock SET pieces = %s WHERE id = 1", [pieces])
        return True
    except psycopg.Error as error:
        if error.diag.sqlstate == "FL001":
            return False
        raise


def write_if_newest(connection, token, pieces):
    """The same without a gate: the row has the token of its last writer."""
    with connection.transaction():
        update = "UPDATE stock SET pieces = %s, fence = %s WHERE id = 1 AND fence <= %s"
        return connection.execute(update, [pieces, token, token]).rowcount == 1


def lock_in(connection, key, limit):
    """Begins a transaction that holds the key until it ends. Returns its token, or None while a client holds the key.

    While another transaction holds it, this waits, and raises LockNotAvailable after the limit.
    """
    connection.execute("SELECT set_config('lock_timeout', %s, true)", [limit])
    return connection.execute("SELECT fencelock.lock_in(%s)", [key]).fetchone()[0]


def answer(connection, words):
    match words:
        case ["gate", token, pieces]:
            return "written" if write_behind_gate(connection, int(token), int(pieces)) else "stale"
        case ["newest", token, pieces]:
            return "written" if write_if_newest(connection, int(token), int(pieces)) else "stale"
        case ["lock", key, limit]:
            try:
                token = lock_in(connection, key, limit)
            except psycopg.errors.LockNotAvailable:
                connection.rollback()
                return "busy"
            if token is None:
                connection.rollback()
                return "held"
            return f"locked {token}"
        case ["commit"]:
            connection.commit()
            return "committed"
    return f"error no such words: {words}"


url = f"host=127.0.0.1 port={sys.argv[1]} user=postgres dbname=postgres"
with psycopg.connect(url) as connection:
    print(f"ready psycopg {psycopg.__version__}", flush=True)
    for line in sys.stdin:
        print(answer(connection, line.split()), flush=True)
