use crate::Invalid;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The proof of a hold: 128 random bits, written as 32 lowercase hexadecimal digits.
///
/// A client that knows it can renew and release. Every attempt uses a new one: a late release of an earlier
/// attempt must not free a later one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct HolderId([u8; 16]);

impl HolderId {
    /// The length of the text form.
    pub const HEX_LEN: usize = 32;

    /// The caller provides 128 bits from a cryptographic source.
    pub const fn from_bytes(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The 128 bits, for a backend that stores them as such.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The text form as ASCII bytes, without an allocation.
    pub fn hex(&self) -> [u8; Self::HEX_LEN] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; Self::HEX_LEN];
        for (i, byte) in self.0.iter().enumerate() {
            out[2 * i] = DIGITS[usize::from(byte >> 4)];
            out[2 * i + 1] = DIGITS[usize::from(byte & 15)];
        }
        out
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<HolderId> for String {
    fn from(holder: HolderId) -> Self {
        holder.to_string()
    }
}

impl TryFrom<String> for HolderId {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl FromStr for HolderId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_ours =
            text.len() == Self::HEX_LEN && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let number = is_ours.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| Invalid::new(format!("a holder is 32 lowercase hexadecimal digits, not {text:?}")))
    }
}

/// The owner of a hold. It is informational: no decision depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    text: Arc<str>,
}

impl Owner {
    /// The maximum length of a label in bytes; longer ones are rejected, not truncated.
    pub const LABEL_MAX_BYTES: usize = 128;

    const HOST_MAX_BYTES: usize = 64;
    /// The maximum length of host, process and label together.
    const MAX_BYTES: usize = 256;

    /// `host` and `pid` identify the process; `label` describes the purpose.
    ///
    /// # Errors
    /// [`Invalid`] if the label is too long or contains a control character.
    pub fn new(host: &str, pid: u32, label: Option<&str>) -> Result<Self, Invalid> {
        let host = plain(&host.replace(' ', "_"), Self::HOST_MAX_BYTES);
        let text = match label {
            None | Some("") => format!("{host}:{pid}"),
            Some(label) if label.len() > Self::LABEL_MAX_BYTES => {
                return Err(Invalid::new(format!(
                    "a label has at most {} bytes; this one has {}",
                    Self::LABEL_MAX_BYTES,
                    label.len()
                )));
            }
            Some(label) if label.chars().any(char::is_control) => {
                return Err(Invalid::new(format!("a label must not contain control characters: {label:?}")));
            }
            Some(label) => format!("{host}:{pid} {label}"),
        };
        Ok(Self { text: text.into() })
    }

    /// Accepts the text of another process: at most 256 bytes, with `_` for characters that move the cursor of a terminal
    /// or change the direction of text.
    pub fn from_text(text: &str) -> Self {
        Self { text: plain(text, Self::MAX_BYTES).into() }
    }

    /// `host:pid label`, or `host:pid` without a label.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host:pid`.
    pub fn process(&self) -> &str {
        self.text.split_once(' ').map_or(&*self.text, |(process, _)| process)
    }

    /// The host; the whole of [`Owner::process`] if another program wrote it in another form.
    pub fn host(&self) -> &str {
        self.process()
            .rsplit_once(':')
            .filter(|(_, pid)| pid.parse::<u32>().is_ok())
            .map_or(self.process(), |(host, _)| host)
    }

    /// The process id, if known.
    pub fn pid(&self) -> Option<u32> {
        self.process().rsplit_once(':').and_then(|(_, pid)| pid.parse().ok())
    }

    /// The label.
    pub fn label(&self) -> Option<&str> {
        self.text.split_once(' ').map(|(_, label)| label)
    }
}

/// At most this many bytes, in whole characters.
fn plain(text: &str, longest: usize) -> String {
    let mut out = String::with_capacity(text.len().min(longest));
    for c in text.chars().take(longest) {
        // Marks that change the text direction can make one text look like another.
        let moves =
            c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let c = if moves { '_' } else { c };
        if out.len() + c.len_utf8() > longest {
            break;
        }
        out.push(c);
    }
    out
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.process())?;
        match self.label() {
            Some(label) => write!(f, " ({label})"),
            None => Ok(()),
        }
    }
}

/// An attempt to hold a key: its holder id and its owner.
///
/// Exhaustive: these two form the value on the server, which does not change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The holder id.
    pub id: HolderId,
    /// The owner.
    pub owner: Owner,
}

struct Wire<'a>(&'a Holder);

impl fmt::Display for Wire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.id, f)?;
        f.write_str(" ")?;
        f.write_str(self.0.owner.as_str())
    }
}

impl Holder {
    /// The value on the server: the holder id, a space, the owner.
    ///
    /// Other libraries compare the whole value byte by byte, so any different text is safe.
    pub const fn wire(&self) -> impl fmt::Display + '_ {
        Wire(self)
    }

    /// Parses a value from the server; `None` if another program wrote it.
    pub fn from_wire(value: &str) -> Option<Self> {
        let (id, owner) = value.split_at_checked(HolderId::HEX_LEN)?;
        let owner = owner.strip_prefix(' ')?;
        Some(Self { id: id.parse().ok()?, owner: Owner::from_text(owner) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> HolderId {
        HolderId::from_bytes([byte; 16])
    }

    #[test]
    fn an_owner_is_a_host_a_process_and_a_label() {
        let owner = Owner::from_text("web-1:4242 nightly run");
        assert_eq!((owner.host(), owner.pid(), owner.label()), ("web-1", Some(4242), Some("nightly run")));
        let address = Owner::from_text("::1:7");
        assert_eq!((address.host(), address.pid()), ("::1", Some(7)));
        let odd = Owner::from_text("nobody:knows");
        assert_eq!((odd.host(), odd.pid(), odd.label()), ("nobody:knows", None, None));
    }

    #[test]
    fn the_text_form_reads_back() {
        let id = HolderId::from_bytes([0x00, 0x0f, 0xf0, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(id.to_string(), "000ff0ff0102030405060708090a0b0c");
        assert_eq!(id.to_string().as_bytes(), id.hex());
        assert_eq!(id.to_string().parse::<HolderId>().unwrap(), id);
    }

    #[test]
    fn anything_but_32_lowercase_digits_is_refused() {
        for text in ["", "ab", &"A".repeat(32), &"g".repeat(32), &"0".repeat(33), "锁锁锁锁锁锁锁锁锁锁12"] {
            assert!(text.parse::<HolderId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_wire_value_keeps_its_owner_and_label() {
        let owner = Owner::new("web-1", 4242, Some("nightly report")).unwrap();
        let holder = Holder { id: id(0xab), owner };
        assert_eq!(holder.wire().to_string(), format!("{} web-1:4242 nightly report", "ab".repeat(16)));
        let back = Holder::from_wire(&holder.wire().to_string()).unwrap();
        assert_eq!(back, holder);
        assert_eq!(back.owner.label(), Some("nightly report"));
        assert_eq!(back.owner.to_string(), "web-1:4242 (nightly report)");
    }

    #[test]
    fn values_of_other_libraries_are_not_ours() {
        for value in ["", "1", "5f3b", &"ab".repeat(16), "b2c5c8d9-53f7-4d67-a9f5-0a6f2a3c1e77", &"锁".repeat(20)] {
            assert_eq!(Holder::from_wire(value), None, "{value}");
        }
    }

    #[test]
    fn a_label_with_a_line_break_is_refused() {
        assert!(Owner::new("h", 1, Some("a\nb")).is_err());
        assert!(Owner::new("h", 1, Some(&"x".repeat(129))).is_err());
    }

    #[test]
    fn an_owner_from_elsewhere_is_cut_and_moves_no_cursor() {
        let owner = Owner::from_text(&format!("web:1 \u{1b}[2J\u{202e}{}", "锁".repeat(400)));
        assert!(owner.as_str().starts_with("web:1 _[2J_锁") && owner.as_str().len() <= 256, "{owner}");
    }

    #[test]
    fn the_longest_owner_of_ours_stays_whole_on_the_wire() {
        let owner = Owner::new(&"h".repeat(300), u32::MAX, Some(&"l".repeat(128))).unwrap();
        let holder = Holder { id: id(1), owner };
        assert!(holder.wire().to_string().len() <= 300);
        assert_eq!(Holder::from_wire(&holder.wire().to_string()).as_ref(), Some(&holder));
    }

    #[test]
    fn a_host_name_cannot_smuggle_in_a_label() {
        assert_eq!(Owner::new("a b\nc", 1, None).unwrap().as_str(), "a_b_c:1");
    }
}
