//! Both stories, told by real processes: what goes wrong without a lock, and that nothing does with one.
#![allow(missing_docs)]

use fencelock_testkit::{RedisServer, redis_or_skip};
use std::process::Command;

/// What a program has printed, and its numbers by name.
struct Told {
    out: String,
    err: String,
}

impl Told {
    fn number(&self, name: &str) -> i64 {
        let row = self.out.lines().find_map(|line| line.trim().strip_prefix(name));
        let row = row.unwrap_or_else(|| panic!("no {name:?} in {}", self.out));
        row.trim().parse().unwrap_or_else(|_| panic!("{row:?} is no number"))
    }
}

fn tell(program: &str, arguments: &[&str]) -> Told {
    let output = Command::new(program).args(arguments).output().expect("a program that can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = Told { out: text(&output.stdout), err: text(&output.stderr) };
    assert!(output.status.success(), "{}{}", told.out, told.err);
    told
}

fn flash_sale(arguments: &[&str]) -> Told {
    tell(env!("CARGO_BIN_EXE_flash_sale"), arguments)
}

fn bank(arguments: &[&str]) -> Told {
    tell(env!("CARGO_BIN_EXE_bank"), arguments)
}

fn sold_out_and_no_more(told: &Told, stock: i64) {
    assert_eq!((told.number("sold"), told.number("stock left")), (stock, 0), "{}{}", told.out, told.err);
    assert_eq!((told.number("oversold by"), told.number("refused writes")), (0, 0), "{}{}", told.out, told.err);
}

fn overrun(server: &RedisServer, more: &[&str]) -> Told {
    flash_sale(&[&["--overrun", "--ttl", "500", "--lock", &server.url()], more].concat())
}

#[test]
fn without_a_lock_the_shop_sells_what_it_does_not_have() {
    let told = flash_sale(&["--lock", "none"]);
    assert!(told.number("oversold by") > 0, "{}", told.out);
}

#[test]
fn with_a_lock_in_a_file_the_shop_sells_each_piece_once() {
    sold_out_and_no_more(&flash_sale(&["--stock", "3"]), 3);
}

#[test]
fn with_a_lock_in_redis_the_shop_sells_each_piece_once() {
    let Some(server) = redis_or_skip() else { return };
    sold_out_and_no_more(&flash_sale(&["--stock", "3", "--lock", &server.url()]), 3);
}

#[test]
fn a_buyer_that_overran_its_lease_is_refused_by_its_token() {
    let Some(server) = redis_or_skip() else { return };
    let told = overrun(&server, &[]);
    assert_eq!((told.number("sold"), told.number("refused writes")), (1, 1), "{}{}", told.out, told.err);
    assert_eq!(told.number("oversold by"), 0);
}

#[test]
fn a_buyer_that_overran_its_lease_oversells_where_nobody_checks_its_token() {
    let Some(server) = redis_or_skip() else { return };
    let told = overrun(&server, &["--no-fence"]);
    assert_eq!((told.number("sold"), told.number("refused writes")), (2, 0), "{}{}", told.out, told.err);
    assert_eq!(told.number("oversold by"), 1);
}

#[test]
fn without_a_lock_one_of_two_payments_is_lost() {
    // Both clerks wait for each other to have read, so the bound is never reached.
    let told = bank(&["--lock", "none", "--patience", "60000"]);
    assert!([700, 500].contains(&told.number("balance")), "{}", told.out);
}

#[test]
fn with_a_lock_in_a_file_both_payments_count() {
    assert_eq!(bank(&["--patience", "300"]).number("balance"), 200);
}

#[test]
fn with_a_lock_in_redis_both_payments_count() {
    let Some(server) = redis_or_skip() else { return };
    assert_eq!(bank(&["--patience", "300", "--lock", &server.url()]).number("balance"), 200);
}
