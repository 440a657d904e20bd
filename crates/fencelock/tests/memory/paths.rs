//! Locks on paths, compared with a model of sets of paths.

use crate::common::{Scene, ms, secs};
use fencelock::{Guards, Key, Mode, TreePath};
use fencelock_testkit::SplitMix;
use std::collections::BTreeMap;

fn path(name: &str, shared: bool) -> Vec<(Key, Mode)> {
    TreePath::new("host:/top", name).unwrap().locks(if shared { Mode::Shared } else { Mode::Exclusive })
}

fn contains(one: &str, two: &str) -> bool {
    one == "." || one == two || two.starts_with(&format!("{one}/"))
}

#[tokio::test(start_paused = true)]
async fn random_histories_are_those_of_sets_of_paths() {
    const PATHS: [&str; 10] = [".", "a", "b", "a/a", "a/b", "ab", "a/a/a", "a/a/b", "a/b/a", "b/a"];
    for seed in 0..40 {
        let (scene, mut rng) = (Scene::new(), SplitMix::new(seed));
        let clients: Vec<_> = (0..3).map(|_| scene.neighbour()).collect();
        let mut held: BTreeMap<u32, (&str, bool, Guards)> = BTreeMap::new();
        for step in 0..120 {
            let (name, shared) = (rng.pick(&PATHS), rng.percent(50));
            if rng.percent(30) && !held.is_empty() {
                let one = rng.pick(&held.keys().copied().collect::<Vec<_>>());
                held.remove(&one).unwrap().2.release().await.unwrap();
                continue;
            }
            let lock = rng.pick(&clients).lock_each(path(name, shared));
            let is_free = held
                .values()
                .all(|(other, both, _)| (shared && *both) || !(contains(name, other) || contains(other, name)));
            let guards = lock.try_acquire().await.unwrap();
            assert_eq!(guards.is_some(), is_free, "seed {seed}, step {step}: {name}, shared: {shared}, {held:?}");
            held.extend(guards.map(|guards| (step, (name, shared, guards))));
        }
        drop(held);
        scene.pass(ms(100)).await;
        assert_eq!(scene.client.list().await.unwrap(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_writer_below_and_the_writer_for_a_reader_above() {
    for shared_first in [false, true] {
        let scene = Scene::new();
        let lock = |name: &str, shared: bool| scene.neighbour().lock_each(path(name, shared)).ttl(secs(30));
        let names = if shared_first { ["src", "src/db"] } else { ["src/db", "src"] };
        let first = lock(names[0], shared_first).await.unwrap();
        let busy = lock(names[1], !shared_first).wait(secs(2)).await.unwrap_err();
        assert!(busy.is_busy() && TreePath::of_key(busy.key().unwrap().as_str()) == Some("src"), "{busy}");
        let waiting = tokio::spawn(lock(names[1], !shared_first).acquire());
        scene.pass(secs(100)).await;
        assert!(!waiting.is_finished());
        first.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_held());
    }
}
