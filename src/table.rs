//! Tables for people: aligned columns, numbers to the right, every cell escaped.

use std::fmt::Write as _;

use crate::escape::escape;

/// Spaces between two columns.
const GAP: &str = "  ";

/// Whether text for people may hold colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Text only.
    #[default]
    Plain,
    /// A terminal that shows colour, and nobody set `NO_COLOR`.
    Colored,
}

impl Style {
    /// The text in bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// The text in bold red: for the word `error`.
    pub fn alarm(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colored => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    align: Align,
}

impl Column {
    /// A column of words, aligned to the left.
    pub fn text(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Left,
        }
    }

    /// A column of numbers, aligned to the right.
    pub fn number(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Right,
        }
    }
}

/// Rows under titles.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; each cell is escaped, missing cells are empty, surplus ones are left out.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().map(|cell| escape(cell.as_ref()));
        self.rows.push(cells.take(self.columns.len()).collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as lines of text, each with its newline; titles in bold where colour is allowed.
    pub fn render(&self, style: Style) -> String {
        let widths = self.widths();
        let titles = self.columns.iter().map(|column| column.title.as_str());
        let mut text = style.bold(&self.line(titles, &widths));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&self.line(row.iter().map(String::as_str), &widths));
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let width_of = |(index, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(column.title.chars().count())
        };
        self.columns.iter().enumerate().map(width_of).collect()
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, column), width) in cells.zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            // Writing to a string cannot fail.
            let _written = match column.align {
                Align::Left => write!(line, "{cell:<width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> Table {
        let mut table = Table::new([Column::text("MODEL"), Column::number("INPUT")]);
        table.row(["claude-sonnet-4-5", "$3.00"]);
        table.row(["x", "$12.00"]);
        table
    }

    /// Words stand left, numbers right, and no line ends in spaces.
    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            prices().render(Style::Plain),
            "MODEL               INPUT\n\
             claude-sonnet-4-5   $3.00\n\
             x                  $12.00\n"
        );
    }

    /// Colour touches the titles only, and only where it is allowed.
    #[test]
    fn only_a_coloured_table_holds_escapes() {
        assert!(!prices().render(Style::Plain).contains('\x1b'));
        let colored = prices().render(Style::Colored);
        assert!(colored.starts_with("\x1b[1mMODEL               INPUT\x1b[0m\n"));
        assert_eq!(colored.matches('\x1b').count(), 2);
    }

    /// A hostile cell can neither draw nor add a row.
    #[test]
    fn t37_cells_are_escaped() {
        let mut table = Table::new([Column::text("NAME"), Column::text("NOTE")]);
        table.row(["a\x1b[2J", "b\nc"]);
        assert_eq!(
            table.render(Style::Plain),
            "NAME      NOTE\na\\x1b[2J  b\\nc\n"
        );
    }
}
