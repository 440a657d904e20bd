//! The names of the locks of a load.

/// The key of one task.
pub(crate) fn own(base: &str, process: u32, task: u32) -> String {
    format!("{base}:{process}:{task}")
}

/// The key with this number.
pub(crate) fn one_of_many(base: &str, number: u32) -> String {
    format!("{base}:{number}")
}
