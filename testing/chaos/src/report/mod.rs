//! A page about one run, with pictures.

mod closeup;
mod overview;
mod scale;
mod tables;
mod timeline;

use crate::fault::Fault;
use crate::phases::Settings;
use crate::run::Run;
use fencelock_lab::svg::escape;
use std::fmt::Write;
use timeline::Timeline;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1220px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid #ddd;padding:.2em .9em .2em 0;text-align:left}\
.good{color:#1e7d32}.bad{color:#c0392b}h2{margin-top:2em}svg{max-width:100%;height:auto}p.key{color:#555}";

/// The page as a single file.
pub fn html(settings: &Settings, run: &Run) -> String {
    let timeline = Timeline::of(&run.history);
    let seconds = timeline.end.saturating_sub(timeline.begin) / 1_000_000;
    let word = if run.results.is_good() {
        "<b class=\"good\">No guarantee was violated without an excuse, and every control was flagged.</b>"
    } else {
        "<b class=\"bad\">Guarantees were violated.</b>"
    };
    let Settings { seed, topology, workers, tasks, keys, ttl, .. } = settings;
    let foreign = if topology.has_proxies() { ", one foreign client" } else { "" };
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>fencelock chaos, seed {seed}</title>\
         <style>{STYLE}</style>\n<h1>Chaos, seed {seed}</h1>\n<p>{word}</p>\n<p>Locks on {topology}; {workers} processes with {tasks} \
         tasks each on {keys} keys, TTL {ttl:?}{foreign}; {seconds} s and {} faults.</p>\n",
        timeline.faults.len()
    );
    page += "<h2>Checks</h2>\n";
    page += &tables::checks(&run.results);
    page += "<h2>The run</h2>\n";
    page += &overview::draw(&timeline);
    page += "<p class=\"key\">Red faults may break exclusion, orange ones nothing. Each process has a colour; the foreign client \
             is grey, the run, which probes every key after each fault, yellow. Point at something to read more.</p>\n";
    page += "<h2>Faults</h2>\n";
    page += &tables::faults(&run.history);
    page += "<h2>Operations</h2>\n";
    page += &tables::operations(&run.history);
    page += "<h2>Close-ups</h2>\n<p class=\"key\">A bar is a hold, for as long as its holder assumed it; two rows for one key are \
             two holders at the same time. Below it, black: an accepted write; red: a rejected write. A red line through a bar: the \
             holder was notified of the loss. The digits are the last ones of the token.</p>\n";
    for fault in Fault::ALL {
        let first = timeline.faults.iter().find(|line| line.what.as_deref() == Some(fault.name()));
        if let Some(line) = first {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "<h3>{} ({})</h3>", fault.name(), escape(&line.client));
            page += &closeup::draw(&timeline, line);
        }
    }
    page
}
