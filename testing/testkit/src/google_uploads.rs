use crate::http::HttpRequest;
use std::io::{self, BufReader, Read, Write};
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
    let Some(request) = HttpRequest::read(&mut BufReader::new(client))? else { return Ok(()) };
    let (first, headers) = request.head.split_once("\r\n").unwrap_or_default();
    let upload = first.strip_prefix("PUT /").and_then(|rest| rest.split(' ').next()?.split_once('/'));
    let line = upload.map_or(first.to_owned(), |(bucket, object)| {
        let condition = request.header("x-goog-if-generation-match");
        let condition = condition.map(|generation| format!("&ifGenerationMatch={generation}")).unwrap_or_default();
        format!("POST /upload/storage/v1/b/{bucket}/o?uploadType=media&name={object}{condition} HTTP/1.1")
    });
    let is_kept = |line: &&str| !line.is_empty() && !line.to_ascii_lowercase().starts_with("connection:");
    let kept = headers.lines().filter(is_kept).flat_map(|line| [line, "\r\n"]).collect::<String>();
    let mut stream = TcpStream::connect(("127.0.0.1", server))?;
    stream.write_all(format!("{line}\r\n{kept}Connection: close\r\n\r\n").as_bytes())?;
    stream.write_all(&request.body)?;
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
