//! Runs both examples with real processes, with and without a lock.

use fencelock_testkit::{RedisServer, redis_or_skip};
use std::process::Command;

/// The output of a program, and its numbers by name.
struct ProgramOutput {
    out: String,
    err: String,
}

impl ProgramOutput {
    fn number(&self, name: &str) -> i64 {
        let row = self.out.lines().find_map(|line| line.trim().strip_prefix(name));
        let row = row.unwrap_or_else(|| panic!("no {name:?} in {}", self.out));
        row.trim().parse().unwrap_or_else(|_| panic!("{row:?} is not a number"))
    }
}

fn run(program: &str, arguments: &[&str]) -> ProgramOutput {
    let process = Command::new(program).args(arguments).output().expect("a started program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output = ProgramOutput { out: text(&process.stdout), err: text(&process.stderr) };
    assert!(process.status.success(), "{}{}", output.out, output.err);
    output
}

fn flash_sale(arguments: &[&str]) -> ProgramOutput {
    run(env!("CARGO_BIN_EXE_flash_sale"), arguments)
}

fn bank(arguments: &[&str]) -> ProgramOutput {
    run(env!("CARGO_BIN_EXE_bank"), arguments)
}

fn sold_out_and_no_more(output: &ProgramOutput, stock: i64) {
    assert_eq!((output.number("sold"), output.number("stock left")), (stock, 0), "{}{}", output.out, output.err);
    assert_eq!((output.number("oversold by"), output.number("refused writes")), (0, 0), "{}{}", output.out, output.err);
}

fn overrun(server: &RedisServer, more: &[&str]) -> ProgramOutput {
    flash_sale(&[&["--overrun", "--ttl", "500", "--lock", &server.url()], more].concat())
}

#[test]
fn without_a_lock_the_stock_is_oversold() {
    let output = flash_sale(&["--lock", "none"]);
    assert!(output.number("oversold by") > 0, "{}", output.out);
}

#[test]
fn with_a_file_lock_each_item_is_sold_once() {
    sold_out_and_no_more(&flash_sale(&["--stock", "3"]), 3);
}

#[test]
fn with_a_redis_lock_each_item_is_sold_once() {
    let Some(server) = redis_or_skip() else { return };
    sold_out_and_no_more(&flash_sale(&["--stock", "3", "--lock", &server.url()]), 3);
}

#[test]
fn a_write_after_the_lease_is_rejected_by_its_token() {
    let Some(server) = redis_or_skip() else { return };
    let output = overrun(&server, &[]);
    assert_eq!((output.number("sold"), output.number("refused writes")), (1, 1), "{}{}", output.out, output.err);
    assert_eq!(output.number("oversold by"), 0);
}

#[test]
fn a_write_after_the_lease_oversells_without_a_token_check() {
    let Some(server) = redis_or_skip() else { return };
    let output = overrun(&server, &["--no-fence"]);
    assert_eq!((output.number("sold"), output.number("refused writes")), (2, 0), "{}{}", output.out, output.err);
    assert_eq!(output.number("oversold by"), 1);
}

#[test]
fn without_a_lock_one_of_two_payments_is_lost() {
    // Both clerks wait for each other to read, so the time limit is never reached.
    let output = bank(&["--lock", "none", "--patience", "60000"]);
    assert!([700, 500].contains(&output.number("balance")), "{}", output.out);
}

#[test]
fn with_a_file_lock_both_payments_count() {
    assert_eq!(bank(&["--patience", "300"]).number("balance"), 200);
}

#[test]
fn with_a_redis_lock_both_payments_count() {
    let Some(server) = redis_or_skip() else { return };
    assert_eq!(bank(&["--patience", "300", "--lock", &server.url()]).number("balance"), 200);
}
