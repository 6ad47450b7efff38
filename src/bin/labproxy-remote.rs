//! `labproxy-remote`, the program on the host: static, small, without anything secret.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    ExitCode::from(labproxy::remote::main(&arguments))
}
