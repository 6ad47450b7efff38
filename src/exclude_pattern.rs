//! One pattern of what a mirror leaves out, with the meaning that `.gitignore` gives it: whether it is
//! one, wherever it is written.

use ignore::gitignore::GitignoreBuilder;

/// Whether a line is a pattern.
///
/// # Errors
/// With what is wrong with it.
pub fn check(line: &str) -> Result<(), String> {
    let translated = translated(line)?;
    let mut builder = GitignoreBuilder::new("");
    builder
        .add_line(None, &translated)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Whether a pattern takes back in what others leave out.
pub fn takes_back(line: &str) -> bool {
    line.starts_with('!')
}

/// A pattern as the matcher takes it, for which braces have a meaning that they do not have for git.
/// What git and the matcher understand in different ways, and what git takes for a pattern that
/// matches nothing, is an error.
///
/// # Errors
/// With what is wrong with it.
pub fn translated(line: &str) -> Result<String, &'static str> {
    if line.starts_with('#') {
        return Ok(String::new());
    }
    let mut out = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '{' | '}' => out.extend(['\\', letter]),
            '\\' => {
                let after = letters.next().ok_or("a backslash at its end")?;
                out.extend(['\\', after]);
            }
            '[' => {
                out.push('[');
                class(&mut letters, &mut out)?;
            }
            '*' => {
                let begins = matches!(out.as_str(), "" | "!") || out.ends_with(['/', '*']);
                let rest = letters.as_str();
                let stars = rest.trim_start_matches('*');
                if !begins && stars.len() < rest.len() && stars.starts_with('/') {
                    return Err("two stars beside another letter; write one");
                }
                out.push('*');
            }
            _ => out.push(letter),
        }
    }
    Ok(out)
}

/// The letters in brackets, behind the first.
fn class(letters: &mut std::str::Chars<'_>, out: &mut String) -> Result<(), &'static str> {
    let mut is_first = true;
    while let Some(letter) = letters.next() {
        match letter {
            '!' | '^' if is_first => {
                out.push('!');
                // A bracket right behind is a letter still.
                if let Some(rest) = letters.as_str().strip_prefix(']') {
                    out.push(']');
                    *letters = rest.chars();
                }
            }
            ']' if !is_first => {
                out.push(']');
                return Ok(());
            }
            '\\' => return Err("a backslash in brackets"),
            '[' if letters.as_str().starts_with([':', '.', '=']) => {
                return Err("a named class; write the letters, as [0-9]");
            }
            '/' => return Err("a slash in brackets"),
            _ => out.push(letter),
        }
        is_first = false;
    }
    Err("a bracket that is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_pattern_or_says_why_not() {
        for good in [
            "*.log",
            "/a b/",
            "# no pattern, and no error",
            "",
            "!kept",
            "a{b",
            "[0-9]",
        ] {
            check(good).unwrap();
        }
        for bad in ["a[b", "a\\", "[[:alpha:]]", "[z-a]", "x**/y"] {
            assert!(!check(bad).unwrap_err().is_empty(), "{bad}");
        }
        assert!(takes_back("!kept") && !takes_back("\\!kept"));
    }
}
