//! Finding the Linux CLI that belongs to the SDK of this machine: in the Python package, in the npm
//! packages, or on `PATH`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::elf::{self, Kind};
use crate::config::Environment;

/// The scope of the npm packages that hold it.
const SCOPE: &str = "@anthropic-ai";
/// Packages of one platform each, in the order in which an SDK looks.
const NPM_PACKAGES: [&str; 2] = ["claude-agent-sdk", "claude-code"];
/// The file's name in all of them.
const NAME: &str = "claude";
/// Programs that run JavaScript: an agent that begins so has its SDK in npm packages.
const NODE_NAMES: [&str; 6] = ["node", "nodejs", "bun", "deno", "tsx", "npx"];

/// Where to look from.
#[derive(Clone, Copy)]
pub struct From<'a> {
    /// The agent of this machine, when there is one: its SDK is looked at first.
    pub agent: &'a [OsString],
    /// The environment that labproxy was started with.
    pub environment: &'a Environment,
    /// Where it was started.
    pub directory: &'a Path,
}

/// What a search found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The first that runs on the host.
    pub program: Option<PathBuf>,
    /// Files that are CLIs of another machine or system.
    pub others: Vec<PathBuf>,
}

/// Looks for a CLI that runs on a Linux host with this machine, as `uname -m` names it.
pub fn search(from: From<'_>, machine: &str) -> Found {
    let mut found = Found::default();
    for candidate in candidates(from, machine) {
        let Ok(path) = fs::canonicalize(candidate) else {
            continue;
        };
        match elf::kind(&path) {
            Ok(Kind::Linux(of)) if of == elf::machine(machine) => {
                found.program = Some(path);
                return found;
            }
            Ok(_) if !found.others.contains(&path) => found.others.push(path),
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// Every place, in order.
fn candidates(from: From<'_>, machine: &str) -> Vec<PathBuf> {
    let runs_node = from.agent.first().is_some_and(|argv0| {
        let name = Path::new(argv0).file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| NODE_NAMES.contains(&name))
    });
    let (python, npm) = (in_python(from), in_npm(from, machine));
    let mut all = if runs_node {
        [npm, python].concat()
    } else {
        [python, npm].concat()
    };
    for program in on_path(from.environment, NAME) {
        // npm's own link leads to a package whose neighbour is the program.
        if let Ok(real) = fs::canonicalize(&program) {
            let above = real.ancestors();
            for folder in above.filter(|folder| folder.file_name() == Some(OsStr::new(SCOPE))) {
                all.extend(platform_packages(folder, machine));
            }
        }
        all.push(program);
    }
    all
}

/// Files of that name in the directories of `PATH`.
fn on_path(environment: &Environment, name: &str) -> Vec<PathBuf> {
    let path = environment.get("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .filter(|program| program.is_file())
        .collect()
}

/// The packages of Python's installations: the agent's own, the active environment, the project's, those
/// on `PATH`, the user's.
fn in_python(from: From<'_>) -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    let mut of_interpreter = |program: &Path| {
        // An environment's interpreter is a link out of it: its own place comes first.
        for program in [Some(program.to_owned()), fs::canonicalize(program).ok()] {
            let prefix = program.as_deref().and_then(Path::parent);
            prefixes.extend(prefix.and_then(Path::parent).map(Path::to_owned));
        }
    };
    if let Some(argv0) = from.agent.first() {
        let named = Path::new(argv0);
        if named.components().count() > 1 {
            of_interpreter(&from.directory.join(named));
        } else if let Some(name) = named.to_str() {
            on_path(from.environment, name)
                .iter()
                .take(1)
                .for_each(|program| of_interpreter(program));
        }
    }
    for name in ["python3", "python"] {
        on_path(from.environment, name)
            .iter()
            .take(1)
            .for_each(|program| of_interpreter(program));
    }
    if let Some(active) = from.environment.get("VIRTUAL_ENV") {
        prefixes.insert(prefixes.len().min(2), PathBuf::from(active));
    }
    prefixes.push(from.directory.join(".venv"));
    if let Some(home) = from.environment.get("HOME") {
        prefixes.push(Path::new(&home).join(".local"));
    }
    prefixes
        .iter()
        .flat_map(|prefix| site_packages(prefix))
        .map(|packages| packages.join("claude_agent_sdk/_bundled").join(NAME))
        .collect()
}

/// `lib/python3.N/site-packages`, the newest first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<_> = fs::read_dir(prefix.join("lib"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let minor: u32 = name.strip_prefix("python3.")?.parse().ok()?;
            Some((minor, entry.path()))
        })
        .collect();
    versions.sort_by_key(|(minor, _)| std::cmp::Reverse(*minor));
    versions
        .into_iter()
        .flat_map(|(_, path)| [path.join("site-packages"), path.join("dist-packages")])
        .collect()
}

/// The packages of npm above the agent's script and above the working directory.
fn in_npm(from: From<'_>, machine: &str) -> Vec<PathBuf> {
    let script = from
        .agent
        .iter()
        .skip(1)
        .map(|word| from.directory.join(word));
    let script = script.filter_map(|path| fs::canonicalize(path).ok());
    let starts: Vec<PathBuf> = script
        .filter(|path| path.is_file())
        .take(1)
        .chain([from.directory.to_owned()])
        .collect();
    starts
        .iter()
        .flat_map(|start| start.ancestors())
        .flat_map(|folder| platform_packages(&folder.join("node_modules").join(SCOPE), machine))
        .collect()
}

/// The program in each package of that platform, C library of most hosts first.
fn platform_packages(scope: &Path, machine: &str) -> Vec<PathBuf> {
    let platform = match elf::machine(machine) {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let packages = NPM_PACKAGES.iter().flat_map(|package| {
        ["", "-musl"].map(|library| format!("{package}-linux-{platform}{library}"))
    });
    packages
        .map(|package| scope.join(package).join(NAME))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    use super::*;

    const MACHINE: &str = "x86_64";

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            for folder in ["project", "path", "home"] {
                fs::create_dir(world.path(folder)).unwrap();
            }
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(name)
        }

        fn put(&self, name: &str, machine: u8) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut header = vec![0; 64];
            header[..6].copy_from_slice(b"\x7fELF\x02\x01");
            header[18] = machine;
            fs::write(path, header).unwrap();
        }

        fn search(&self, agent: &[&str]) -> Found {
            let variables = [("PATH", "path"), ("HOME", "home")];
            let variables = variables.map(|(name, at)| (name.to_owned(), self.path(at).into()));
            let agent: Vec<OsString> = agent.iter().map(Into::into).collect();
            let from = From {
                agent: &agent,
                environment: &Environment::Fixed(BTreeMap::from(variables)),
                directory: &self.path("project"),
            };
            search(from, MACHINE)
        }

        fn found(&self, agent: &[&str]) -> String {
            let program = self.search(agent).program.unwrap();
            let program = program.strip_prefix(self.path("")).unwrap();
            program.display().to_string()
        }
    }

    const PYTHON: &str = "lib/python3.11/site-packages/claude_agent_sdk/_bundled/claude";
    const NPM: &str = "node_modules/@anthropic-ai/claude-agent-sdk-linux-x64/claude";

    /// The agent's own SDK comes first, then the project's, then what `PATH` has.
    #[test]
    fn the_cli_of_the_agents_sdk_is_found() {
        let world = World::new();
        assert_eq!(world.search(&[]), Found::default());
        world.put("path/claude", 62);
        assert_eq!(world.found(&[]), "path/claude");
        world.put(&format!("project/{NPM}"), 62);
        assert_eq!(world.found(&[]), format!("project/{NPM}"));
        world.put(&format!("project/.venv/{PYTHON}"), 62);
        assert_eq!(
            world.found(&["python3", "x.py"]),
            format!("project/.venv/{PYTHON}")
        );
        assert_eq!(world.found(&["node", "x.mjs"]), format!("project/{NPM}"));
        // An environment's interpreter is a link out of it.
        world.put(&format!("own/{PYTHON}"), 62);
        world.put("system/bin/python3.11", 62);
        fs::create_dir(world.path("own/bin")).unwrap();
        symlink(
            world.path("system/bin/python3.11"),
            world.path("own/bin/python"),
        )
        .unwrap();
        let own = world.path("own/bin/python").display().to_string();
        assert_eq!(world.found(&[&own, "x.py"]), format!("own/{PYTHON}"));
    }

    /// Above the agent's script too, and beside the package that npm's link leads to.
    #[test]
    fn npm_packages_are_found_through_scripts_and_links() {
        let world = World::new();
        world.put(&format!("elsewhere/{NPM}"), 62);
        fs::create_dir_all(world.path("elsewhere/src")).unwrap();
        fs::write(world.path("elsewhere/src/x.mjs"), "").unwrap();
        let script = world.path("elsewhere/src/x.mjs").display().to_string();
        assert_eq!(world.found(&["node", &script]), format!("elsewhere/{NPM}"));
        let wrapper = world.path("global/node_modules/@anthropic-ai/claude-code/cli.cjs");
        fs::create_dir_all(wrapper.parent().unwrap()).unwrap();
        fs::write(&wrapper, "#!/usr/bin/env node\n").unwrap();
        symlink(&wrapper, world.path("path/claude")).unwrap();
        let found = world.search(&[]);
        assert_eq!((found.program, found.others), (None, vec![wrapper]));
        let beside = "global/node_modules/@anthropic-ai/claude-code-linux-x64/claude";
        world.put(beside, 62);
        assert_eq!(world.found(&[]), beside);
    }

    /// A CLI of another machine is not sent, and is named.
    #[test]
    fn a_cli_of_another_machine_is_passed_over() {
        let world = World::new();
        world.put(&format!("project/.venv/{PYTHON}"), 183);
        let found = world.search(&[]);
        assert_eq!(found.program, None);
        assert_eq!(
            found.others,
            [world.path(&format!("project/.venv/{PYTHON}"))]
        );
        world.put("path/claude", 62);
        assert_eq!(world.found(&[]), "path/claude");
    }
}
