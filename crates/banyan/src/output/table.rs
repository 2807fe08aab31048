//! Tables that fit: columns share the width of the terminal and a cell that
//! does not fit ends in `…`. Into a pipe they are as wide as they need.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Row, Table, presets};

/// Narrower than this nothing is readable; let the terminal wrap instead.
const WIDTH_MIN: u16 = 40;

pub struct Column<T> {
    pub header: &'static str,
    /// Only shown with `-o wide`.
    pub wide: bool,
    pub value: fn(&T) -> String,
}

impl<T> Column<T> {
    pub const fn new(header: &'static str, value: fn(&T) -> String) -> Self {
        Self { header, wide: false, value }
    }

    pub const fn wide(header: &'static str, value: fn(&T) -> String) -> Self {
        Self { header, wide: true, value }
    }
}

/// The width to keep to; none when stdout is not a terminal.
pub fn terminal_width() -> Option<u16> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    (size.ws_col >= WIDTH_MIN).then_some(size.ws_col)
}

pub fn render<T>(items: &[T], columns: &[Column<T>], wide: bool, width: Option<u16>) -> String {
    let columns: Vec<_> = columns.iter().filter(|column| wide || !column.wide).collect();
    let rows = items.iter().map(|item| columns.iter().map(|column| (column.value)(item)).collect());
    grid(columns.iter().map(|column| column.header.to_owned()).collect(), rows, width)
}

/// Rows of text under a header.
pub fn grid(header: Vec<String>, rows: impl Iterator<Item = Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty().set_truncation_indicator("…");
    match width {
        Some(width) => table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    let mut header = Row::from(header);
    header.max_height(1);
    table.set_header(header);
    for cells in rows {
        let cells: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        let mut row = Row::from(cells);
        row.max_height(1);
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Control characters in a cell would break the table or drive the terminal.
fn one_line(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.replace(char::is_control, " ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> impl Iterator<Item = Vec<String>> {
        [["web-1", "running", "a rather long message that no narrow terminal has room for"]]
            .into_iter()
            .map(|row| row.map(str::to_owned).to_vec())
    }

    fn header() -> Vec<String> {
        ["NAME", "PHASE", "MESSAGE"].map(str::to_owned).to_vec()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = grid(header(), rows(), Some(50));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
        assert!(text.contains("web-1") && text.contains('…'), "{text}");
    }

    #[test]
    fn a_header_is_one_line_also_where_it_is_cut() {
        let header = ["NAME", "AVAILABILITY", "MESSAGE"].map(str::to_owned).to_vec();
        let rows = [["a".repeat(30), "x".into(), "y".repeat(30)].to_vec()].into_iter();
        let text = grid(header, rows, Some(40));
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn into_a_pipe_nothing_is_cut() {
        let text = grid(header(), rows(), None);
        assert!(text.contains("has room for"), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(one_line("a\x1b[31m\nb"), "a [31m b");
        assert_eq!(one_line(""), "-");
    }
}
