//! Runs the examples of the documentation.

use fencelock_testkit::{ClusterNodes, RedisServer, Reply, redis_or_skip};
use rusqlite::{Connection, named_params};
use std::path::Path;
use std::process::Command;

/// The code blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(path).expect("a page");
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

/// The code block that contains these words.
fn block(page: &str, language: &str, words: &str) -> String {
    let found = blocks(page, language).into_iter().find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("no block of {language} with {words:?} in {page}"))
}

fn stock() -> Connection {
    let db = Connection::open_in_memory().expect("a database");
    db.execute_batch("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER); INSERT INTO stock VALUES ('a', 9);")
        .expect("a table");
    db.execute_batch(&block("docs/en/fencing.md", "sql", "ALTER TABLE")).expect("the page's SQL");
    db
}

#[test]
fn the_sql_recipe_rejects_a_smaller_token_and_accepts_an_equal_one() {
    let db = stock();
    let sql = block("docs/en/fencing.md", "sql", "UPDATE stock");
    let write = |token: i64| {
        let values = named_params! { ":pieces": 1, ":token": token, ":item": "a" };
        db.execute(&sql, values).expect("the page's SQL")
    };
    assert_eq!([write(7), write(7), write(6), write(8), write(7)], [1, 1, 0, 1, 0]);
}

#[test]
fn the_sql_recipe_of_shared_locks_orders_writers_and_readers() {
    let db = Connection::open_in_memory().expect("a database");
    db.execute_batch("CREATE TABLE prices (item TEXT PRIMARY KEY, price INTEGER); INSERT INTO prices VALUES ('a', 9);")
        .expect("a table");
    db.execute_batch(&block("docs/en/fencing.md", "sql", "read_fence BIGINT")).expect("the page's SQL");
    let write_sql = block("docs/en/fencing.md", "sql", "UPDATE prices SET price");
    let read_sql = block("docs/en/fencing.md", "sql", "UPDATE prices SET read_fence");
    let write = |token: i64| {
        let values = named_params! { ":price": 1, ":token": token, ":item": "a" };
        db.execute(&write_sql, values).expect("the page's SQL")
    };
    let read =
        |token: i64| db.execute(&read_sql, named_params! { ":token": token, ":item": "a" }).expect("the page's SQL");
    assert_eq!([write(5), read(8), read(6), read(7)], [1; 4], "readers have no order");
    assert_eq!([write(7), read(4), write(9), read(8), write(9), read(9)], [0, 0, 1, 0, 1, 1]);
}

fn eval(server: &RedisServer, script: &str, arguments: &[&str]) -> Reply {
    server.command(&[&["EVAL", script, "1", "stock:a"], arguments].concat())
}

#[test]
fn the_lua_recipe_rejects_a_smaller_token_and_accepts_an_equal_one() {
    let Some(server) = redis_or_skip() else { return };
    let script = block("docs/en/fencing.md", "lua", "HSET");
    let write = |token: &str| eval(&server, &script, &[token, "pieces", "1"]);
    let answers = ["1795178623084345", "1795178623084345", "1795178623084344", "1795178623084346"].map(write);
    assert_eq!(answers, [Reply::Int(1), Reply::Int(1), Reply::Int(0), Reply::Int(1)]);
    assert_eq!(server.command(&["HGET", "stock:a", "pieces"]), Reply::Text("1".into()));
}

#[test]
fn the_lua_recipe_of_shared_locks_orders_writers_and_readers() {
    let Some(server) = redis_or_skip() else { return };
    let script = block("docs/en/fencing.md", "lua", "read_fence");
    let write = |token: &str| eval(&server, &script, &[token, "write", "pieces", token]) == Reply::Int(1);
    let read = |token: &str| matches!(eval(&server, &script, &[token, "read"]), Reply::Array(_));
    assert!(read("3") && write("5") && read("8") && read("6") && read("7"), "readers have no order");
    assert!(!write("7") && !read("4") && write("9") && !read("8") && write("9") && read("9"));
    assert_eq!(server.command(&["HGET", "stock:a", "pieces"]), Reply::Text("9".into()));
}

/// Runs a sale whose locks belong to the user of this URL.
fn sells(url: &str) {
    let sale = Command::new(env!("CARGO_BIN_EXE_flash_sale")).args(["--buyers", "40", "--lock", url]).output();
    let sale = sale.expect("a program that can be started");
    assert!(sale.status.success(), "{}", String::from_utf8_lossy(&sale.stderr));
}

/// Creates the user `locks`.
fn allow(server: &RedisServer, rules: &str) {
    let user: Vec<&str> = ["ACL", "SETUSER", "locks"].into_iter().chain(rules.split_whitespace()).collect();
    assert_eq!(server.command(&user), Reply::Simple("OK".into()));
}

fn denied_nothing(server: &RedisServer) {
    assert_eq!(server.command(&["ACL", "LOG"]), Reply::Array(vec![]), "the server denied no command");
}

#[test]
fn the_documented_permissions_are_sufficient() {
    // The lock of the shop has a different name.
    let rules = block("docs/en/operations.md", "acl", "+evalsha").replace("app:", "sku:");
    let Some(server) = redis_or_skip() else { return };
    allow(&server, &rules);
    sells(&format!("redis://locks:secret@127.0.0.1:{}?prefix=sku:", server.port()));
    denied_nothing(&server);
}

#[test]
fn the_documented_permissions_are_sufficient_on_a_cluster() {
    let rules = block("docs/en/operations.md", "acl", "+evalsha").replace("app:", "sku:");
    let more = block("docs/en/cluster.md", "cluster", "ssubscribe");
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    for node in &cluster.nodes {
        // Since Redis 7.0.
        let has_shards =
            matches!(node.command(&["COMMAND", "INFO", "SPUBLISH"]), Reply::Array(found) if found != [Reply::Nil]);
        let more = if has_shards { more.clone() } else { more.replace("+ssubscribe +spublish", "") };
        allow(node, &format!("{rules} {more}"));
    }
    sells(&cluster.url("prefix=sku:").replace("://", "://locks:secret@"));
    cluster.nodes.iter().for_each(denied_nothing);
}
