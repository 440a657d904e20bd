//! Splits the data of a client into requests, of Redis or of HTTP.

/// The complete requests at the start of these bytes. An incomplete or invalid request ends the list.
pub(super) fn whole(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = length(bytes)?;
        let (request, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(request)
    })
}

/// The words of a request; none if it is invalid.
pub(super) fn words(request: &[u8]) -> Vec<String> {
    let Some((count, mut at)) = number(request, 0, b'*') else { return Vec::new() };
    let word = |at: &mut usize| {
        let (length, begin) = number(request, *at, b'$')?;
        *at = begin + length + 2;
        Some(String::from_utf8_lossy(request.get(begin..begin + length)?).into_owned())
    };
    (0..count).map_while(|_| word(&mut at)).collect()
}

/// A request with these words.
pub(super) fn of(words: &[&str]) -> Vec<u8> {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>()).into_bytes()
}

/// The length of the first request: `*2` and the number of words, each with its length; or a head, which tells the length of a body.
fn length(bytes: &[u8]) -> Option<usize> {
    if bytes.first().is_some_and(u8::is_ascii_uppercase) {
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let lines = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let body = lines.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
        return head.checked_add(body.map_or(Some(0), |length| length.trim().parse().ok())?);
    }
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

/// A number after this sign, and the position of the next line.
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
    /// A word that contains the end of a word.
    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n";

    #[test]
    fn requests_are_split() {
        let both = [PING, GET, PING].concat();
        assert_eq!(whole(&both).collect::<Vec<_>>(), [PING, GET, PING]);
    }

    #[test]
    fn a_request_of_http_ends_with_its_body() {
        let (get, put) =
            (&b"GET /k HTTP/1.1\r\nHost: x\r\n\r\n"[..], &b"PUT /k HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"[..]);
        assert_eq!(whole(&[put, get, put].concat()).collect::<Vec<_>>(), [put, get, put]);
        for end in 1..put.len() {
            assert_eq!(whole(&[get, &put[..end]].concat()).collect::<Vec<_>>(), [get], "{end}");
        }
    }

    #[test]
    fn a_request_has_its_words() {
        assert_eq!(words(GET), ["GET", "a\r\nb"]);
        assert_eq!(of(&["GET", "a\r\nb"]), GET);
        assert!(words(b"PING\r\n").is_empty());
    }

    #[test]
    fn an_incomplete_request_is_ignored() {
        for end in 1..GET.len() {
            let bytes = [PING, &GET[..end]].concat();
            assert_eq!(whole(&bytes).collect::<Vec<_>>(), [PING], "{end}");
        }
    }

    #[test]
    fn invalid_data_is_ignored() {
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
