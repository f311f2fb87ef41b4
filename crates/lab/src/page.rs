//! A report in Markdown, built from blocks. A blank line separates two blocks.

use client::table::Table;

#[derive(Clone, Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    pub fn new(title: &str) -> Page {
        let mut page = Page::default();
        page.block(format!("# {title}"));
        page
    }

    pub fn section(&mut self, heading: &str) {
        self.block(format!("## {heading}"));
    }

    pub fn subsection(&mut self, heading: &str) {
        self.block(format!("### {heading}"));
    }

    pub fn paragraph(&mut self, text: impl AsRef<str>) {
        self.block(text);
    }

    /// Adds a list, unless it is empty.
    pub fn list(&mut self, items: impl IntoIterator<Item = String>) {
        let lines: Vec<String> = items.into_iter().map(|item| format!("- {item}")).collect();
        if !lines.is_empty() {
            self.block(lines.join("\n"));
        }
    }

    pub fn table(&mut self, table: &Table) {
        self.block(table.markdown());
    }

    /// Adds a figure by the name of its file.
    pub fn figure(&mut self, name: &str, file: &str) {
        self.block(format!("![{name}]({file})"));
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn block(&mut self, text: impl AsRef<str>) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.as_ref().trim_end());
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use client::table::Align;

    use super::*;

    #[test]
    fn blank_lines_separate_the_blocks() {
        let mut table = Table::new([("store", Align::Right)]);
        table.row(["1".to_owned()]);
        let mut page = Page::new("Stores");
        page.paragraph("Two of them.");
        page.section("What it shows");
        page.table(&table);
        page.list(["one".to_owned(), "two".to_owned()]);
        page.list([]);
        page.figure("used", "used.svg");
        let wanted = "# Stores\n\nTwo of them.\n\n## What it shows\n\n| store |\n| ---: |\n| 1 |\n\n\
                      - one\n- two\n\n![used](used.svg)\n";
        assert_eq!(page.into_text(), wanted);
    }
}
