//! Aligned columns for a terminal, where a Chinese character is two cells wide.

use unicode_width::UnicodeWidthStr;

/// The width of a text in terminal cells.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text`, padded with spaces to `cells`.
pub(crate) fn padded(text: &str, cells: usize) -> String {
    format!("{text}{}", " ".repeat(cells.saturating_sub(width(text))))
}

/// The width of each column.
pub(crate) fn widths<'a>(rows: impl IntoIterator<Item = &'a [String]>) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    widths
}

/// Breaks `text` into lines of at most `cells`, at spaces, or between Chinese characters.
pub(crate) fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in pieces(text) {
        let line = lines.last_mut().expect("at least one line");
        if !line.is_empty() && width(line) + width(word.trim_end()) > cells && !begins_badly(word) {
            lines.push(String::new());
        }
        lines.last_mut().expect("at least one line").push_str(word);
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Characters that must not start a Chinese line.
fn begins_badly(word: &str) -> bool {
    word.starts_with(['，', '。', '；', '：', '、', '）', '”', '？', '！'])
}

fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if c == ' ' || !c.is_ascii() {
            if !c.is_ascii() && at > from {
                pieces.push(&text[from..at]);
                from = at;
            }
            pieces.push(&text[from..end]);
            from = end;
        }
    }
    pieces.push(&text[from..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chinese_character_is_two_cells_wide() {
        assert_eq!((width("互斥"), width("lock")), (4, 4));
        assert_eq!(padded("互斥", 6), "互斥  ");
    }

    #[test]
    fn lines_break_at_spaces_and_between_chinese_characters() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("先执行SETNX再执行，好", 10), ["先执行", "SETNX再执", "行，好"]);
        assert_eq!(wrapped("一二三四五，六", 10), ["一二三四五，", "六"]);
    }
}
