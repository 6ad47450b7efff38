//! What keeps a tool in: bubblewrap, with nothing of the machine but programs and the view.
//!
//! The tool gets user, mount, pid, ipc, uts, cgroup and network namespaces of its own and no
//! capabilities; `/usr` and a closed list of files of `/etc`, read-only; an empty home and `/tmp`
//! that vanish with it; its view at [`WORKSPACE`]. It is the child of a shell that is the first
//! process of its PID namespace: when the tool ends the kernel ends everything that it left, before
//! anybody learns of the end, so nothing of it writes to the view that is then read again.
//!
//! Nothing weaker is ever chosen silently: without bubblewrap, or without the right to make
//! namespaces, there is no audit unless the user asks for one without a sandbox.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::child::{self, ChildCommand, ChildSession, CoreLimit, ProcessLimits, Trampoline};
use crate::config::{Config, CredentialChoice, CredentialReference, Paths};
use crate::escape::escape_capped;
use crate::ledger::ToolLimits;
use crate::report::{Failure, FailureKind};

/// Where a sandboxed tool finds its view.
pub const WORKSPACE: &str = "/workspace";
/// Its home, which is empty.
const HOME: &str = "/home/audit";
/// Its user and group there: nobody in particular, the owner of the view.
const ID: &str = "1000";
/// Where it finds programs.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of bubblewrap's own words that are shown.
const WORDS_MAX: usize = 2_000;
/// The first process: it waits for the tool, and its end is everybody's. A shell gives 127 and 126
/// for what it cannot run, and 128 + n for a signal.
const FIRST: &str = "\"$0\" \"$@\"; exit $?";

/// Directories of programs; where one is a link into `/usr` it is a link in the sandbox too.
const PROGRAMS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs need of `/etc`. No keys: `/etc/ssl/private`, `/etc/ssh` and `/etc/shadow` are not
/// there.
const ETC: [&str; 13] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
];
/// What they need of it for the network.
const ETC_NETWORK: [&str; 5] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
];

/// What a tool may do with its view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Look at it.
    Read,
    /// Change it: what it makes of it is what is asked for.
    Write,
}

/// A sandbox that was tried: it can be made here.
#[derive(Debug)]
pub struct Sandbox {
    program: PathBuf,
    /// Everything but the view and the tool.
    arguments: Vec<OsString>,
    /// What a tool may read, in which its program must lie.
    visible: Vec<PathBuf>,
    /// Processes and threads at once.
    processes: Option<u64>,
    /// Whether nothing but its own directories can be written to.
    is_closed: bool,
}

impl Sandbox {
    /// Finds bubblewrap in `path` and tries it, started through `trampoline`.
    ///
    /// # Errors
    /// When it is not there, may not make namespaces, or would show what no tool may see.
    pub fn prepare(
        trampoline: &Trampoline,
        path: Option<&OsStr>,
        network: bool,
        limits: &ToolLimits,
        paths: &Paths,
        config: &Config,
    ) -> Result<Self, Failure> {
        let program = child::find("bwrap".as_ref(), path).map_err(|_| {
            Failure::failed("bubblewrap (bwrap) was not found, and no audit runs without a sandbox")
                .hint("install it (apt-get install bubblewrap, dnf install bubblewrap)")
                .hint("--no-sandbox runs the tool with your own power, and the verdict says so")
        })?;
        let mut visible = vec![PathBuf::from("/usr")];
        let mut arguments = namespaces(network);
        arguments.extend(own_directories(limits.tmp_bytes));
        let mut add = |words: &[&OsStr]| arguments.extend(words.iter().map(OsString::from));
        add(&["--ro-bind".as_ref(), "/usr".as_ref(), "/usr".as_ref()]);
        for directory in PROGRAMS.map(Path::new) {
            if let Ok(target) = fs::read_link(directory) {
                add(&["--symlink".as_ref(), target.as_ref(), directory.as_ref()]);
            } else if directory.is_dir() {
                visible.push(directory.to_owned());
                add(&["--ro-bind".as_ref(), directory.as_ref(), directory.as_ref()]);
            }
        }
        let network = ETC_NETWORK.iter().filter(|_| network);
        for file in ETC.iter().chain(network) {
            add(&["--ro-bind-try".as_ref(), file.as_ref(), file.as_ref()]);
        }
        for more in &config.audit.read.value {
            let real = fs::canonicalize(more).map_err(|error| {
                let shown = more.display();
                Failure::because(
                    format!("audit.read: {shown} cannot be shown to a tool"),
                    &error,
                )
            })?;
            add(&["--ro-bind".as_ref(), real.as_ref(), more.as_ref()]);
            visible.push(real);
        }
        judge(&visible, paths, config)?;
        let sandbox = Self {
            program,
            arguments,
            visible,
            processes: limits.processes,
            is_closed: limits.tmp_bytes.is_some(),
        };
        sandbox.try_out(trampoline)?;
        Ok(sandbox)
    }

    /// The program that a tool's name means inside; nothing for a path of the view.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, name: &OsStr) -> Result<(), Failure> {
        let shown = escape_capped(name.as_encoded_bytes(), WORDS_MAX);
        let is_path = name.as_encoded_bytes().contains(&b'/');
        if is_path && !Path::new(name).is_absolute() {
            return Ok(());
        }
        let hint = "a sandboxed tool sees /usr, its view at /workspace, and what audit.read names";
        let kind = match child::find(name, Some(PATH.as_ref())) {
            Ok(found) if self.sees(&found) || Path::new(name).starts_with(WORKSPACE) => {
                return Ok(());
            }
            Err(_) if Path::new(name).starts_with(WORKSPACE) => return Ok(()),
            Err(child::Unfound::NotExecutable) => {
                return Err(Failure::new(
                    FailureKind::NotExecutable,
                    format!("'{shown}' is not executable"),
                ));
            }
            Ok(_) | Err(child::Unfound::Absent) => FailureKind::NotFound,
        };
        Err(Failure::new(kind, format!("'{shown}' was not found in the sandbox")).hint(hint))
    }

    fn sees(&self, program: &Path) -> bool {
        let real = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        self.visible.iter().any(|shown| real.starts_with(shown))
    }

    /// bubblewrap's whole command line for a tool that looks at `view`.
    pub fn command(
        &self,
        view: &Path,
        access: Access,
        argv: &[OsString],
    ) -> (PathBuf, Vec<OsString>) {
        let mut all = self.arguments.clone();
        all.splice(0..0, [OsString::from("bwrap")]);
        let bind = match access {
            Access::Read => "--ro-bind",
            Access::Write => "--bind",
        };
        all.extend([bind.into(), view.as_os_str().to_owned()]);
        all.extend([WORKSPACE, "--chdir", WORKSPACE].map(Into::into));
        all.extend(self.closing());
        let first = format!("{}{FIRST}", self.counted());
        all.extend(["--", "/bin/sh", "-c", &first].map(Into::into));
        all.extend(argv.iter().cloned());
        (self.program.clone(), all)
    }

    /// What the first process says to have the kernel count the others; shells differ in the option.
    fn counted(&self) -> String {
        let line = |most| format!("ulimit -u {most} 2>/dev/null || ulimit -p {most} || exit 125; ");
        self.processes.map(line).unwrap_or_default()
    }

    /// Closes what would be a directory in memory without a limit.
    fn closing(&self) -> impl Iterator<Item = OsString> {
        let closed = ["--remount-ro", "/dev", "--remount-ro", "/"];
        let closed = closed.into_iter().filter(|_| self.is_closed);
        closed.map(OsString::from)
    }

    /// Makes the sandbox once with nothing in it: whatever fails later is the tool's.
    fn try_out(&self, trampoline: &Trampoline) -> Result<(), Failure> {
        let mut argv = vec![OsString::from("bwrap")];
        argv.extend(self.arguments.iter().cloned());
        argv.extend(self.closing());
        let first = format!("{}:", self.counted());
        argv.extend(["--", "/bin/sh", "-c", &first].map(Into::into));
        let mut command = ChildCommand {
            trampoline,
            program: &self.program,
            argv: &argv,
            session: ChildSession::Own,
            core: CoreLimit::Kept,
            limits: ProcessLimits::default(),
        }
        .prepare([]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let cannot = "the sandbox cannot be made, and no audit runs without one";
        let tried = child::spawn(command)
            .and_then(std::process::Child::wait_with_output)
            .map_err(|error| Failure::because(cannot, &error))?;
        if tried.status.success() {
            return Ok(());
        }
        let words = escape_capped(tried.stderr.trim_ascii(), WORDS_MAX);
        Err(Failure::failed(cannot)
            .problem(words)
            .hint("this user must be allowed to make user namespaces: see kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces; a container must allow it too")
            .hint("--no-sandbox runs the tool with your own power, and the verdict says so"))
    }
}

fn namespaces(network: bool) -> Vec<OsString> {
    let mut arguments = vec!["--unshare-all"];
    if network {
        arguments.push("--share-net");
    }
    arguments.extend([
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
        "--uid",
        ID,
        "--gid",
        ID,
        "--hostname",
        "audit",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]);
    arguments.into_iter().map(Into::into).collect()
}

/// What a tool may write to beside its view, in memory.
fn own_directories(bytes: Option<u64>) -> Vec<OsString> {
    let Some(bytes) = bytes else {
        return ["--tmpfs", "/tmp", "--dir", HOME].map(Into::into).into();
    };
    let bytes = bytes.to_string();
    let own = ["/tmp", HOME, "/dev/shm"];
    own.iter()
        .flat_map(|directory| ["--size", &bytes, "--tmpfs", directory].map(OsString::from))
        .collect()
}

/// A tool's environment: nothing of the user's but his language and what the terminal is.
pub fn environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    home: &OsStr,
    path: &OsStr,
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr| {
        let name = name.to_str().unwrap_or_default();
        matches!(name, "LANG" | "TERM" | "TZ" | "NO_COLOR" | "COLORTERM") || name.starts_with("LC_")
    };
    let inherited = inherited.into_iter().filter(|(name, _)| passes(name));
    let own = [
        ("HOME", home),
        ("PATH", path),
        ("TMPDIR", OsStr::new("/tmp")),
        // Python would write into its input.
        ("PYTHONDONTWRITEBYTECODE", OsStr::new("1")),
    ];
    let own = own.map(|(name, value)| (OsString::from(name), value.to_owned()));
    inherited.chain(own).collect()
}

/// The home that a sandboxed tool sees.
pub fn home() -> &'static OsStr {
    OsStr::new(HOME)
}

/// Refuses to show a tool what no tool may see.
fn judge(visible: &[PathBuf], paths: &Paths, config: &Config) -> Result<(), Failure> {
    let mut hidden = vec![
        ("labproxy's state", paths.state().to_owned()),
        ("labproxy's configuration", paths.config().to_owned()),
        ("labproxy's sockets", paths.runtime().to_owned()),
        ("keys of ssh", PathBuf::from("/etc/ssh")),
        ("passwords", PathBuf::from("/etc/shadow")),
    ];
    if let Some(home) = paths.home() {
        hidden.push(("keys and settings of ssh", home.join(".ssh")));
    }
    if let CredentialChoice::Named(CredentialReference::File { path, .. }) =
        &config.upstream.credential.value
    {
        hidden.push(("the credential", path.clone()));
    }
    for host in config.hosts.values() {
        let key = host.key_path.as_ref();
        hidden.extend(key.map(|path| ("a key of ssh", path.value.clone())));
    }
    for (what, place) in hidden {
        let real = fs::canonicalize(&place).unwrap_or(place);
        let clash = visible
            .iter()
            .find(|shown| real.starts_with(shown) || shown.starts_with(&real));
        if let Some(shown) = clash {
            return Err(Failure::usage(format!(
                "a tool may not see {}: {what} is there ({})",
                shown.display(),
                real.display()
            ))
            .hint("name a directory without it in audit.read, or move it"));
        }
    }
    Ok(())
}
