use super::{FENCE_MAX, HandOff, VERSION};

/// The meaning of a message for a client of this version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// The key was handed over.
    Grant {
        /// The run of the server.
        run_id: String,
        /// The receiver, as 32 digits.
        holder: String,
        /// The last token, the number of tokens, and the lease in ms.
        numbers: [u64; 3],
        /// The key.
        key: String,
    },
    /// It proves nothing. Waiters of this key poll.
    Hint {
        /// The key.
        key: String,
    },
    /// Not a message of any version.
    Garbage,
}

impl HandOff {
    /// The message, as the scripts publish it.
    pub fn text(&self, run_id: &str, key: &str) -> String {
        let Self { to, fence, count, lease_ms, .. } = self;
        format!("{VERSION} {run_id} {} {fence} {count} {lease_ms}\t{key}", to.text())
    }
}

impl Message {
    /// Only a message with exactly the words of this version is a grant. The key follows the first tab in every version.
    pub fn read(text: &str) -> Self {
        let Some((words, key)) = text.split_once('\t') else {
            return Self::Garbage;
        };
        let key = key.to_owned();
        let words: Vec<&str> = words.split(' ').collect();
        let [VERSION, run_id, holder, last, count, lease] = words[..] else { return Self::Hint { key } };
        let is_id = holder.len() == 32 && holder.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let number =
            |word: &str, least: u64, most: u64| word.parse().ok().filter(|number| (least..=most).contains(number));
        let numbers = (number(last, 1, FENCE_MAX), number(count, 1, u32::MAX.into()), number(lease, 0, u64::MAX));
        match numbers {
            (Some(last), Some(count), Some(lease_ms)) if is_id => {
                let (run_id, holder) = (run_id.to_owned(), holder.to_owned());
                Self::Grant { run_id, holder, numbers: [last, count.min(last), lease_ms], key }
            }
            _ => Self::Hint { key },
        }
    }
}
