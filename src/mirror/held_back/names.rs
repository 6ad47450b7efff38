//! The names that are held back, and how they are compared.

/// Paths below a git directory, and what git does with them.
pub(super) const IN_GIT: &[(&str, &str)] = &[
    (
        "config",
        "git runs the programs that it names, on a plain git status too",
    ),
    (
        "config.worktree",
        "git runs the programs that it names, on a plain git status too",
    ),
    (
        "commondir",
        "git takes its configuration and hooks from the directory that it names",
    ),
    (
        "objects/info/alternates",
        "git reads objects from any directory that it names",
    ),
    (
        "objects/info/http-alternates",
        "git fetches objects from any address that it names",
    ),
];

/// How a file in a git directory ends that git holds a lock by, and why it waits.
pub(super) const LOCK: (&[u8], &str) = (
    b".lock",
    "git was at work there: the copy may have half of what it did, and git here would wait for it",
);

/// Directories below a git directory of which everything is held back.
pub(super) const IN_GIT_DIRECTORIES: &[(&str, &str)] = &[
    (
        "hooks",
        "git runs it when a person commits, checks out or pushes",
    ),
    (
        "rebase-merge",
        "git rebase --continue runs the exec lines of its list",
    ),
];

/// Paths anywhere, and who runs them.
pub(super) const AUTO_RUN: &[(&str, &str)] = &[
    (".envrc", "direnv runs it when a shell enters the directory"),
    (
        ".claude/settings.json",
        "Claude Code runs its hooks and commands",
    ),
    (
        ".claude/settings.local.json",
        "Claude Code runs its hooks and commands",
    ),
    (".mcp.json", "an agent starts the servers that it names"),
    (
        ".cursor/mcp.json",
        "an editor starts the servers that it names",
    ),
    (
        ".vscode/mcp.json",
        "an editor starts the servers that it names",
    ),
    (
        ".gemini/settings.json",
        "an agent starts the servers and commands that it names",
    ),
    (
        ".codex/config.toml",
        "an agent starts the servers and commands that it names",
    ),
    (
        ".vscode/tasks.json",
        "an editor runs its tasks when the folder is opened",
    ),
    (
        ".vscode/settings.json",
        "an editor runs the tools whose paths it sets",
    ),
    (
        ".idea/startup.xml",
        "an editor runs its tasks when the project is opened",
    ),
    (
        ".devcontainer/devcontainer.json",
        "an editor runs its commands on the machine itself",
    ),
    (
        ".devcontainer.json",
        "an editor runs its commands on the machine itself",
    ),
    (
        ".cargo/config.toml",
        "cargo runs the wrappers, linkers and runners that it names, an editor's check too",
    ),
    (
        ".cargo/config",
        "cargo runs the wrappers, linkers and runners that it names, an editor's check too",
    ),
];

/// Directories anywhere of which everything is held back.
pub(super) const AUTO_RUN_DIRECTORIES: &[(&str, &str)] = &[
    (
        ".husky",
        "git runs it as a hook where the configuration points to it, as its tool sets up",
    ),
    (
        ".githooks",
        "git runs it as a hook where the configuration points to it, as is usual",
    ),
];

/// A name as a file system takes it that folds case, drops what cannot be seen, or has short names:
/// on such a one `.GIT`, `.g\u{200c}it` and `git~1` are `.git`. One that folds more than was meant
/// only waits.
pub(super) fn folded(name: &[u8]) -> Vec<u8> {
    if name.is_ascii() {
        return trimmed(name.to_ascii_lowercase());
    }
    let Ok(text) = std::str::from_utf8(name) else {
        return name.to_ascii_lowercase();
    };
    let seen = text.chars().filter(|letter| !is_invisible(*letter));
    // Some letters of other scripts fold to ASCII: the Kelvin sign, the long s.
    let folded: String = seen
        .flat_map(|letter| {
            match letter {
                '\u{17f}' => 's',
                other => other,
            }
            .to_lowercase()
        })
        .collect();
    trimmed(folded.into_bytes())
}

/// A folded name without the dots and spaces at its end, and a short name as the long one.
fn trimmed(mut folded: Vec<u8>) -> Vec<u8> {
    let last = folded.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    // One of nothing else stays as it is.
    if let Some(last) = last {
        folded.truncate(last.saturating_add(1));
    }
    if folded == b"git~1" {
        return b".git".to_vec();
    }
    folded
}

/// Code points that HFS+ leaves out of a comparison.
const fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fold_as_file_systems_do() {
        for git in [
            ".git",
            ".GIT",
            ".Git",
            ".g\u{200c}it",
            "\u{feff}.git",
            "GIT~1",
            ".git. ",
        ] {
            assert_eq!(folded(git.as_bytes()), b".git", "{git:?}");
        }
        assert_eq!(folded("hoo\u{212a}\u{17f}".as_bytes()), b"hooks");
        assert_ne!(folded(b"git"), b".git");
        assert_eq!(folded(b"\xffA"), b"\xffa");
        assert_eq!(folded(b"..."), b"...");
    }
}
