//! The server answers as the specification of a key.

use fencelock_postgres::Postgres;
use fencelock_postgres_testing::postgres_or_skip;
use fencelock_testkit::Histories;

#[tokio::test]
async fn the_server_answers_as_the_table() {
    let Some(server) = postgres_or_skip() else { return };
    let url = format!("{}?create=true&timeout=60000", server.url("postgres"));
    let clients = [Postgres::open(&url).await.expect("a server"), Postgres::open(&url).await.expect("a server")];
    let histories = Histories { number: 120, queues: true, leases: true, any_mode: true };
    // Half of the keys have handed over often before: they come from another server, by logical replication.
    let before = format!("SELECT 'k' || n, 1000000 FROM generate_series(0, {}, 2) n", histories.number);
    server.sql(&format!("INSERT INTO fencelock.locks (key, head) {before}"));
    histories.play([&clients[0], &clients[1]], None).await;
}
