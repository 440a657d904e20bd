//! Finding the requests in what a client sends.

/// The whole requests at the beginning of these bytes. A part of one ends the list, and so does anything else.
pub(super) fn whole(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = length(bytes)?;
        let (request, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(request)
    })
}

/// How long the first one is: `*2` and so many words, each with its own length.
fn length(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number(bytes, 0, b'*')?;
    for _ in 0..words {
        let (length, begin) = number(bytes, at, b'$')?;
        at = begin.checked_add(length)?.checked_add(2)?;
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// A line with a number after this sign: the number, and where the next line begins.
fn number(bytes: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let digits = line[..end].strip_prefix(&[sign])?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, at + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    /// A word that looks like the end of one.
    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n";

    #[test]
    fn requests_are_told_apart() {
        let both = [PING, GET, PING].concat();
        assert_eq!(whole(&both).collect::<Vec<_>>(), [PING, GET, PING]);
    }

    #[test]
    fn a_part_of_a_request_is_none() {
        for end in 1..GET.len() {
            let bytes = [PING, &GET[..end]].concat();
            assert_eq!(whole(&bytes).collect::<Vec<_>>(), [PING], "{end}");
        }
    }

    #[test]
    fn what_is_no_request_is_none() {
        for bytes in [
            &b""[..],
            b"PING\r\n",
            b"*x\r\n",
            b"*1\r\n$99999999999999999999\r\nx\r\n",
            b"*1\r\n:1\r\n",
            b"$4\r\nPING\r\n",
        ] {
            assert_eq!(whole(bytes).count(), 0, "{bytes:?}");
        }
    }
}
