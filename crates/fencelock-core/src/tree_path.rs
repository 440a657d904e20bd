use crate::{Invalid, Key, Mode};

/// A path in a tree of files. Its lock is in conflict with those of itself, of everything above and of everything below it, unless both
/// are shared.
///
/// These are the locks of a hierarchy of Gray et al., "Granularity of Locks and Degrees of Consistency in a Shared Data Base" (1976). A
/// path has two keys, which stand for itself and for what is below it:
///
/// | a lock of | takes of each path above | and of the path itself |
/// |---|---|---|
/// | a writer | what is below, shared | both, exclusive |
/// | a reader | itself, shared | itself, shared; what is below, as one of many readers |
///
/// So writers meet neither the readers nor the writers beside them. The readers of what is below a path and the writers there are two
/// classes ([`Mode::same_class`]), which exclude each other. The order of the keys by their bytes is from the top.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TreePath {
    path: String,
    /// From the root to the path.
    levels: Vec<[Key; 2]>,
}

/// What all keys of paths begin with.
const PREFIX: &str = "path:";
/// The longest name of a root in a key, and the longest path: together they fit into a [`Key`].
const LONGEST_ROOT: usize = 200;
const LONGEST_PATH: usize = Key::MAX_BYTES - PREFIX.len() - LONGEST_ROOT - "//".len();
/// Readers of what is below a path.
const READER: Mode = Mode::Permits { weight: 1, limit: Mode::MOST_PERMITS };

impl TreePath {
    /// The levels below the root: each has a key.
    pub const MAX_LEVELS: usize = 32;

    /// `path` is relative to the root of this identity, with `/` between its parts; empty parts and `.` are ignored. Without any part it is
    /// the root. An identity has no `//`, and does not end with `/`.
    ///
    /// # Errors
    /// [`Invalid`] if the path has `..`, more than [`TreePath::MAX_LEVELS`] levels, or a control character.
    pub fn new(root: &str, path: &str) -> Result<Self, Invalid> {
        let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let path = if parts.is_empty() { ".".to_owned() } else { parts.join("/") };
        if parts.contains(&"..") {
            return Err(Invalid::new(format!("{path}: a path in a tree has no `..`")));
        }
        if parts.len() > Self::MAX_LEVELS {
            let (most, levels) = (Self::MAX_LEVELS, parts.len());
            let why = format!("a path has at most {most} levels below its root, and this one has {levels}");
            return Err(Invalid::new(format!("{path}: {why}: lock a directory further up")));
        }
        let root = short(root, LONGEST_ROOT);
        let level = |depth: usize| {
            let above: String = parts[..depth].iter().flat_map(|part| ["/", part]).collect();
            let itself = format!("{PREFIX}{root}/{}", short(&above, LONGEST_PATH));
            Ok([Key::new(&itself)?, Key::new(itself + "/")?])
        };
        let levels = (0..=parts.len()).map(level).collect::<Result<_, Invalid>>()?;
        Ok(Self { path, levels })
    }

    /// Relative to the root; `.` for the root.
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// The last of its keys, from the top: each of its holders has it, exclusively or as one of many readers.
    pub fn key(&self) -> &Key {
        &self.levels[self.levels.len() - 1][1]
    }

    /// What a lock on this path takes, from the top. A mode that is not shared is exclusive.
    pub fn locks(&self, mode: Mode) -> Vec<(Key, Mode)> {
        let reads = mode == Mode::Shared;
        let last = self.levels.len() - 1;
        let above = self.levels[..last].iter().map(|[itself, below]| if reads { itself } else { below });
        let own = if reads { [Mode::Shared, READER] } else { [Mode::Exclusive; 2] };
        let above = above.map(|key| (key.clone(), Mode::Shared));
        above.chain(self.levels[last].iter().cloned().zip(own)).collect()
    }

    /// The path that a key stands for; `None` for any other key. The end of a long path is a digest.
    pub fn of_key(key: &str) -> Option<&str> {
        let rest = key.strip_prefix(PREFIX).filter(|rest| rest.contains('/'))?;
        let path = rest.split_once("//").map_or("", |(_, path)| path);
        let path = path.strip_suffix('/').unwrap_or(path);
        Some(if path.is_empty() { "." } else { path })
    }
}

/// The text, or its beginning and a digest of all of it.
fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..most - 16).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}~{:016x}", &text[..end], fnv1a(text))
}

/// A digest that is the same in every version: FNV-1a.
#[doc(hidden)]
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str, mode: Mode) -> Vec<(String, Mode)> {
        let locks = TreePath::new("r", path).unwrap().locks(mode);
        locks.into_iter().map(|(key, mode)| (key.as_str().to_owned(), mode)).collect()
    }

    #[test]
    fn a_path_is_locked_from_the_top() {
        use Mode::{Exclusive, Shared};
        let expect =
            |locks: &[(&str, Mode)]| locks.iter().map(|(key, mode)| ((*key).to_owned(), *mode)).collect::<Vec<_>>();
        let writer =
            [("path:r//", Shared), ("path:r//a/", Shared), ("path:r//a/b", Exclusive), ("path:r//a/b/", Exclusive)];
        let reader = [("path:r/", Shared), ("path:r//a", Shared), ("path:r//a/b", Shared), ("path:r//a/b/", READER)];
        for path in ["a/b", "./a//b/", "a/./b"] {
            assert_eq!(names(path, Exclusive), expect(&writer), "{path}");
            assert_eq!(names(path, Shared), expect(&reader), "{path}");
        }
        assert_eq!(names(".", Exclusive), expect(&[("path:r/", Exclusive), ("path:r//", Exclusive)]));
        for (path, of) in [("", "."), ("a", "a"), (" !/-", " !/-")] {
            for (key, _) in names(path, Exclusive).into_iter().rev().take(2) {
                assert_eq!(TreePath::of_key(&key), Some(of), "{key}");
            }
        }
        assert_eq!((TreePath::of_key("a//b"), TreePath::of_key("path:x")), (None, None));
    }

    /// The rule, for every two paths of up to three levels.
    #[test]
    fn two_paths_conflict_if_one_contains_the_other_and_one_of_both_is_exclusive() {
        let paths = ["", "a", "b", "a/a", "a/b", "ab", "a/a/a", "a/a/b", "a/ab/b"];
        let contains = |one: &str, two: &str| one.is_empty() || one == two || two.starts_with(&format!("{one}/"));
        for (one, two) in paths.iter().flat_map(|one| paths.map(|two| (*one, two))) {
            for (mode, other) in [(0, 0), (0, 1), (1, 0), (1, 1)]
                .map(|(a, b)| ([Mode::Shared, Mode::Exclusive][a], [Mode::Shared, Mode::Exclusive][b]))
            {
                let (first, second) = (names(one, mode), names(two, other));
                let meet = |(key, mode): &(String, Mode)| {
                    second.iter().any(|(of, other)| of == key && !mode.same_class(*other))
                };
                let expected =
                    (contains(one, two) || contains(two, one)) && (mode, other) != (Mode::Shared, Mode::Shared);
                assert_eq!(first.iter().any(meet), expected, "{one:?} {mode}, {two:?} {other}");
            }
        }
    }

    #[test]
    fn keys_are_in_order_and_a_long_path_has_short_keys_of_its_own() {
        let long = (0..20).map(|level| format!("{level:030}")).collect::<Vec<_>>().join("/");
        let root = "/r".repeat(300);
        for path in ["", ".git", "!/-/ ", &long[..200]] {
            let keys = names(path, Mode::Exclusive);
            assert!(keys.is_sorted_by(|one, two| one.0 < two.0), "{keys:?}");
        }
        let path = |root: &str, path: &str| TreePath::new(root, path).unwrap();
        let key = |root: &str, name: &str| path(root, name).levels.pop().unwrap();
        let (one, two) = (key(&root, &long), key(&root, &format!("{long}x")));
        assert!(one != two && one != key(&format!("{root}/r"), &long));
        assert_eq!((path(&root, &long).as_str(), one), (&*long, key(&root, &long)));
        assert_eq!(path("r", "é/".repeat(16).as_str()).levels.len(), 17);
    }

    #[test]
    fn what_is_no_path_in_a_tree_is_refused() {
        let refused = |path: &str| TreePath::new("r", path).unwrap_err().to_string();
        assert_eq!(refused("a/../b"), "a/../b: a path in a tree has no `..`");
        assert!(TreePath::new("r", &"a/".repeat(32)).is_ok());
        assert!(
            refused(&"a/".repeat(33))
                .contains("at most 32 levels below its root, and this one has 33: lock a directory")
        );
        assert!(refused("a\nb").contains("control character"));
    }
}
