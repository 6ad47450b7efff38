//! The agent's CLI on the host: the Linux program that belongs to the SDK of this machine is sent there
//! once, by its content, and run from there; without one, or for other agents, a command of the host is
//! used.

pub mod elf;
pub mod search;
mod send;

use std::path::{Path, PathBuf};

pub use self::search::From;
pub use self::send::{HostShell, version};

use self::elf::Kind;
use crate::report::Failure;
use crate::wire::bytes::ByteString;

/// The program that launches on the host run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its path there, or a name for the `PATH` there.
    pub path: ByteString,
    /// The file here that was sent; `None` for a command of the host.
    pub sent: Option<PathBuf>,
    /// Files of this machine that the host cannot run.
    pub passed_over: Vec<PathBuf>,
}

/// Puts the CLI on the host, unless it is there. `configured` is `agent.binary` when it is a path, `name`
/// the command to fall back to.
///
/// # Errors
/// When the configured file cannot run there, or cannot be sent.
pub async fn place(
    shell: &HostShell<'_>,
    configured: Option<&Path>,
    from: From<'_>,
    name: &ByteString,
) -> Result<Placed, Failure> {
    let machine = shell.machine().await?;
    let found = match configured {
        Some(path) => search::Found {
            program: Some(fitting(path, &machine)?),
            others: Vec::new(),
        },
        None => search::search(from, &machine),
    };
    let path = match &found.program {
        Some(program) => shell.send(program).await?,
        None => name.clone(),
    };
    Ok(Placed {
        path,
        sent: found.program,
        passed_over: found.others,
    })
}

/// The configured program, when the host can run it.
fn fitting(path: &Path, machine: &str) -> Result<PathBuf, Failure> {
    let unusable = |why: &str| {
        Failure::usage(format!("agent.binary {}: {why}", path.display())).hint(
            "name a program for the host, a Linux one of its machine; or \"auto\"; a command that \
             the host has is given after --",
        )
    };
    match elf::kind(path) {
        Err(error) => Err(unusable("it cannot be read").caused_by(&error)),
        Ok(Kind::Script) => Ok(path.to_owned()),
        Ok(Kind::Linux(of)) if of == elf::machine(machine) => Ok(path.to_owned()),
        Ok(Kind::Linux(of)) => Err(unusable(&format!(
            "it is a program for {of}, and the host is {machine}"
        ))),
        Ok(Kind::Other) => Err(unusable("it is no Linux program")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configured program must fit the host; the message names both machines.
    #[test]
    fn a_configured_program_fits_the_host() {
        let own = Path::new("/proc/self/exe");
        let machine = elf::machine(std::env::consts::ARCH);
        fitting(own, machine).unwrap();
        let other = fitting(own, "riscv128").unwrap_err();
        assert!(other.message().contains(machine), "{other:?}");
        assert!(other.message().contains("riscv128"), "{other:?}");
        for bad in ["/absent", "/etc/hostname"] {
            fitting(Path::new(bad), machine).unwrap_err();
        }
    }
}
