//! The parts of the Rust syntax that the tidy tests need.

/// The source with all comments, strings and characters replaced by blanks; lines keep their numbers.
pub(crate) fn without_words(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut i = 0;
    while i < chars.len() {
        let end = word_end(&chars, i);
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// The end of the comment, string or character at `i`; `i` if there is none.
fn word_end(chars: &[char], i: usize) -> usize {
    let begins = |text: &str| chars[i..].iter().take(text.len()).copied().eq(text.chars());
    let after = |from: usize, text: &str| {
        let text: Vec<char> = text.chars().collect();
        let found = chars[from..].windows(text.len()).position(|window| window == text);
        found.map_or(chars.len(), |at| from + at + text.len())
    };
    let in_name = i > 0 && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_');
    if begins("//") {
        return after(i, "\n") - usize::from(after(i, "\n") < chars.len());
    }
    if begins("/*") {
        return after(i, "*/");
    }
    if (begins("r\"") || begins("r#") || begins("br\"")) && !in_name {
        let hashes = chars[i..].iter().skip_while(|c| c.is_alphabetic()).take_while(|c| **c == '#').count();
        let quote = i + chars[i..].iter().take_while(|c| c.is_alphabetic()).count() + hashes;
        if chars.get(quote) == Some(&'"') {
            return after(quote + 1, &format!("\"{}", "#".repeat(hashes)));
        }
        return i;
    }
    match chars[i] {
        '"' => quoted_end(chars, i, '"'),
        // A character has a second quote, a lifetime has none.
        '\'' if chars.get(i + 1) == Some(&'\\') || chars.get(i + 2) == Some(&'\'') => quoted_end(chars, i, '\''),
        _ => i,
    }
}

fn quoted_end(chars: &[char], begin: usize, quote: char) -> usize {
    let mut i = begin + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// All functions with a body: the name, and the number of lines from `fn` to the last brace.
pub(crate) fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue;
        }
        let Some(length) = body_end(&code[at..]) else { continue };
        found.push((name, code[at..at + length].lines().count()));
    }
    found
}

/// The end of the first pair of braces; `None` if a semicolon comes first, outside of brackets.
pub(crate) fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn comments_and_strings_are_blanked() {
    let source = "let a = \"fn x() {\"; // fn y() {\nlet c = '{'; let r = r#\"}\"}\"#; fn f<'a>(b: &'a u8) { /* } */ }";
    let code = without_words(source);
    assert!(!code.contains("fn x") && !code.contains("fn y") && code.contains("fn f<'a>"), "{code}");
    assert_eq!(code.matches(['{', '}']).count(), 2, "{code}");
    assert_eq!(code.lines().count(), source.lines().count());
}

#[test]
fn the_lines_of_a_function_are_counted() {
    let code =
        "trait T { fn no_body(&self) -> [u8; 2]; }\nfn two() {\n}\nasync fn five(\n    a: u8,\n) -> u8 {\n    a\n}\n";
    assert_eq!(functions(code), [("two".to_owned(), 2), ("five".to_owned(), 5)]);
}
