//! The violations of each scheme with their number of steps, and the properties that hold with their number of states.

use crate::{all, results_of};
use fencelock_lab::{
    Content, Fault, Faults, Home, Lang, Line, LockScheme, Op, Property, PropertyResult, SchemeResults, find, page,
    table,
};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Compares a file of the project with its expected content. `FENCELOCK_UPDATE=1` writes it instead.
fn is_up_to_date(file: &Path, text: &str) {
    if std::env::var_os("FENCELOCK_UPDATE").is_some() {
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory that can be made");
        fs::write(file, text).expect("a file that can be written");
    }
    let there = fs::read_to_string(file).unwrap_or_default();
    assert!(there == text, "{} has drifted: run this test with FENCELOCK_UPDATE=1", file.display());
}

fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

#[test]
fn the_shortest_violations_have_the_recorded_length() {
    let mut pins = String::new();
    for results in all() {
        for (property, faults, steps) in results.exhibits() {
            let faults = faults.name();
            let _ = writeln!(pins, "{:<24}{:<16}{faults:<13} {steps}", results.scheme.id, property.name());
        }
    }
    is_up_to_date(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalog/exhibits.txt"), &pins);
}

#[test]
fn the_search_of_a_property_that_holds_is_complete() {
    let mut kept = 0;
    for results in all() {
        for property in Property::ALL {
            if let PropertyResult::Holds { states } = results.result(property) {
                kept += 1;
                assert!(states > 500, "{} {property:?}: only {states} states", results.scheme.id);
            }
        }
    }
    assert!(kept > 30, "only {kept} properties hold");
}

#[test]
fn every_exhibit_is_violated_as_its_article_says() {
    for results in all() {
        if let Some((property, fault)) = results.scheme.exhibit {
            assert!(results.steps(property, fault).is_some(), "{} keeps {property:?}", results.scheme.id);
        } else {
            assert!(results.exhibits().is_empty(), "{} has no violation", results.scheme.id);
        }
    }
}

#[test]
fn the_generated_page_is_up_to_date() {
    let results = all();
    let dir = project("docs/en");
    let page = page(results);
    is_up_to_date(&dir.join("why-naive-locks-break.md"), &page.text);
    assert!(page.pictures.len() > 15, "only {} pictures", page.pictures.len());
    for (file, svg) in page.pictures {
        is_up_to_date(&dir.join("lab").join(file), &svg);
    }
}

#[test]
fn the_table_of_all_schemes_is_written_in_chinese() {
    let chinese = table(all(), Lang::Zh, false);
    assert!(chinese.starts_with("方案                   互斥") && chinese.contains("执行超时 6"), "{chinese}");
}

fn mutant(id: &str, change: impl FnOnce(&mut LockScheme)) -> SchemeResults {
    let mut scheme = find(id).expect("a scheme");
    change(&mut scheme);
    SchemeResults::of(scheme)
}

fn swap(lines: &mut [Line], from: Op, to: Op) {
    let mut swapped = 0;
    for line in lines.iter_mut().filter(|line| line.op == from) {
        line.op = to;
        swapped += 1;
    }
    assert!(swapped > 0, "no {from:?} to change");
}

#[test]
fn a_release_without_owner_check_deletes_the_lock_of_another_client() {
    let results = mutant("token-lua", |scheme| swap(&mut scheme.lines, Op::CompareDel, Op::Del));
    assert_eq!(results.steps(Property::OwnLockOnly, Some(Fault::Overrun)), Some(7));
}

#[test]
fn a_lock_without_expiry_stays_after_a_crash() {
    let without = |scheme: &mut LockScheme| swap(&mut scheme.lines, Op::SetNxEx(Content::Id), Op::SetNx(Content::Id));
    let results = mutant("token-lua", without);
    assert_eq!(results.steps(Property::NoDeadLock, Some(Fault::Crash)), Some(5));
}

#[test]
fn a_token_without_a_check_accepts_a_late_write() {
    let results = mutant("fencelock", |scheme| scheme.is_fenced = false);
    assert!(results.steps(Property::NoLateWrite, Some(Fault::Pause)).is_some());
}

#[test]
fn a_lock_without_renewal_is_lost_in_an_overrun() {
    let results = mutant("fencelock", |scheme| scheme.is_renewed = false);
    assert!(results.steps(Property::Exclusion, Some(Fault::Overrun)).is_some());
    assert_eq!(results_of("fencelock").steps(Property::Exclusion, Some(Fault::Overrun)), None);
}

#[test]
fn a_lock_without_death_detection_stays_after_a_crash() {
    let results = mutant("process", |scheme| scheme.home = Home::Redis);
    assert!(results.steps(Property::NoDeadLock, Some(Fault::Crash)).is_some());
}

#[test]
fn a_client_that_ignores_its_votes_overlaps_with_another() {
    let results = mutant("redlock", |scheme| {
        let count = scheme.lines.iter_mut().find(|line| line.op == Op::HasMajority).expect("a count");
        count.no = count.yes;
    });
    assert!(results.steps(Property::Exclusion, Faults::NONE).is_some());
    assert_eq!(results_of("redlock").steps(Property::Exclusion, Faults::NONE), None);
}
