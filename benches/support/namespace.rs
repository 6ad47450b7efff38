//! A network namespace of the benchmark's own.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Goes on in such a namespace, whose loopback is up: the program is started again there, with `inner`
/// set, which says that it is there already.
pub fn enter(inner: &str) {
    if std::env::var_os(inner).is_none() {
        assert!(
            rustix::process::geteuid().is_root(),
            "a network namespace needs root"
        );
        let error = Command::new("unshare")
            .arg("--net")
            .arg(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env(inner, "1")
            .exec();
        panic!("unshare cannot be started: {error}");
    }
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.unwrap().success(), "loopback cannot be brought up");
}
