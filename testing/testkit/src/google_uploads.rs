use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Carries requests of Google's XML interface to fake-gcs-server, from this listener to a local port, until this process ends.
///
/// The server has no conditional upload over XML, which clients of Google use, but it has one over JSON. So an upload becomes one of
/// JSON with the same condition, and its answer shows the generation as that of XML does. Everything else stays as it is.
pub fn carry_google_uploads(listener: TcpListener, server: u16) {
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Either side may go away.
            std::thread::spawn(move || drop(carry(&client, server)));
        }
    });
}

/// Carries one request. The connection ends with its answer.
fn carry(mut client: &TcpStream, server: u16) -> io::Result<()> {
    let (first, headers, body) = read(&mut BufReader::new(client))?;
    let header = |name: &str| {
        let mut headers = headers.iter().filter_map(|line| line.split_once(':'));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let upload = first.strip_prefix("PUT /").and_then(|rest| rest.split(' ').next()?.split_once('/'));
    let line = upload.map_or(first.clone(), |(bucket, object)| {
        let condition = header("x-goog-if-generation-match");
        let condition = condition.map(|generation| format!("&ifGenerationMatch={generation}")).unwrap_or_default();
        format!("POST /upload/storage/v1/b/{bucket}/o?uploadType=media&name={object}{condition} HTTP/1.1")
    });
    let kept = headers.iter().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let kept = kept.flat_map(|line| [line.as_str(), "\r\n"]).collect::<String>();
    let mut stream = TcpStream::connect(("127.0.0.1", server))?;
    stream.write_all(format!("{line}\r\n{kept}Connection: close\r\n\r\n").as_bytes())?;
    stream.write_all(&body)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    if upload.is_some() {
        let text = String::from_utf8_lossy(&reply);
        let generation = text.split_once("\"generation\":\"").and_then(|(_, rest)| rest.split('"').next());
        if let Some((generation, (status, rest))) = generation.zip(text.split_once("\r\n")) {
            let headers = format!("ETag: \"{generation}\"\r\nx-goog-generation: {generation}");
            reply = format!("{status}\r\n{headers}\r\n{rest}").into_bytes();
        }
    }
    client.write_all(&reply)
}

/// The first line of a request, its headers, and its body.
fn read(reader: &mut impl BufRead) -> io::Result<(String, Vec<String>, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let headers = lines.split_off(1);
    Ok((lines.swap_remove(0), headers, body))
}
