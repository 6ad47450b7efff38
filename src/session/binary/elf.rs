//! What kind of program a file is, by its first bytes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of an ELF header up to and with the machine.
const HEADER: usize = 20;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Linux program for this machine, as `uname -m` names it.
    Linux(&'static str),
    /// A text that names its interpreter.
    Script,
    /// A program of another system or kind.
    Other,
}

/// Machines that a host may be: the number in an ELF header and the name that `uname -m` gives.
const MACHINES: [(u16, &str); 3] = [(62, "x86_64"), (183, "aarch64"), (243, "riscv64")];

/// The name of `uname -m` under which a machine stands in our list.
pub fn machine(uname: &str) -> &str {
    match uname {
        "arm64" => "aarch64",
        "amd64" => "x86_64",
        other => other,
    }
}

/// Looks at a file.
///
/// # Errors
/// When it cannot be read.
pub fn kind(path: &Path) -> io::Result<Kind> {
    let mut header = Vec::new();
    let length = u64::try_from(HEADER).unwrap_or(u64::MAX);
    File::open(path)?.take(length).read_to_end(&mut header)?;
    Ok(of_header(&header))
}

fn of_header(header: &[u8]) -> Kind {
    if header.starts_with(b"#!") {
        return Kind::Script;
    }
    // 64 bits, little-endian; the system that is named there is Linux or none at all.
    let is_elf = header.starts_with(b"\x7fELF\x02\x01") && matches!(header.get(7), Some(0 | 3));
    let number = header.get(18..HEADER).filter(|_| is_elf);
    let number = number.and_then(|bytes| bytes.first_chunk::<2>());
    let number = number.map(|bytes| u16::from_le_bytes(*bytes));
    let known = MACHINES
        .iter()
        .find(|(machine, _)| Some(*machine) == number);
    known.map_or(Kind::Other, |(_, name)| Kind::Linux(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, order: u8, system: u8, machine: u16) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F', class, order, 1, system];
        header.resize(18, 0);
        header.extend_from_slice(&machine.to_le_bytes());
        header
    }

    /// Linux programs are told by their machine; what another system runs is not taken for one.
    #[test]
    fn a_program_is_known_by_its_header() {
        for (header, expected) in [
            (elf(2, 1, 0, 62), Kind::Linux("x86_64")),
            (elf(2, 1, 3, 183), Kind::Linux("aarch64")),
            (elf(2, 1, 9, 62), Kind::Other),
            (elf(1, 1, 0, 3), Kind::Other),
            (elf(2, 2, 0, 62), Kind::Other),
            (
                b"\xcf\xfa\xed\xfe\x0c\0\0\x01 mach-o, arm".to_vec(),
                Kind::Other,
            ),
            (b"#!/usr/bin/env node\n".to_vec(), Kind::Script),
            (Vec::new(), Kind::Other),
        ] {
            assert_eq!(of_header(&header), expected, "{header:?}");
        }
        let own = kind(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(own, Kind::Linux(machine(std::env::consts::ARCH)));
    }
}
