//! What a tool may use, and what is told of it.

use labproxy::audit::record::exit_status;
use labproxy::ledger::Verdict;

use crate::rig::{Done, Rig};

#[track_caller]
fn failed_by(done: &Done, status: u8, limit: Option<&str>) {
    assert_eq!(done.verdict(), &Verdict::Failed { status }, "{done:?}");
    assert_eq!(done.audit.ended_by.as_deref(), limit, "{done:?}");
    assert_eq!(exit_status(done.verdict()), status);
}

/// A tool that uses up its processor time, or writes too long a file, is ended, and the record has the
/// limit; with a sandbox and without.
#[test]
fn a_limit_that_ends_a_tool_is_in_its_record() {
    let rig = Rig::new();
    rig.configure("[audit]\nmax_cpu = \"1s\"\nmax_write_bytes = 1_000_000\n");
    let spins = "while :; do :; done";
    failed_by(&rig.sh(spins), 152, Some("audit.max_cpu"));
    let writes = "head -c 2000000 /dev/zero > \"$HOME/long\"";
    failed_by(&rig.sh(writes), 153, Some("audit.max_write_bytes"));
    failed_by(&rig.bare(writes), 153, Some("audit.max_write_bytes"));
    let done = rig.sh("head -c 900000 /dev/zero > \"$HOME/short\"");
    assert_eq!(done.verdict(), &Verdict::Passed);
    let limits = done.audit.limits.unwrap();
    assert_eq!(
        (limits.cpu_seconds, limits.write_bytes),
        (Some(1), Some(1_000_000))
    );
    failed_by(&rig.sh("exit 7"), 7, None);
}

/// Memory that a tool may not have is refused to it, and what it does then is its own end.
#[test]
fn memory_is_limited_where_that_is_asked_for() {
    let rig = Rig::new();
    let takes = ["python3", "-c", "print(len(bytearray(400_000_000)))"];
    assert_eq!(
        rig.audit(&takes).verdict(),
        &Verdict::Passed,
        "there is no limit by default"
    );
    rig.configure("[audit]\nmax_memory_bytes = 200_000_000\n");
    failed_by(&rig.audit(&takes), 1, None);
    let less = ["python3", "-c", "print(len(bytearray(40_000_000)))"];
    assert_eq!(rig.audit(&less).verdict(), &Verdict::Passed);
}

/// With a limit of its own directories a tool can write nowhere else.
#[test]
fn a_tools_own_directories_are_limited() {
    let rig = Rig::new();
    rig.configure("[audit]\nmax_tmp_bytes = 1_000_000\n");
    let done = rig.sh("for d in /tmp \"$HOME\" /dev/shm; do
          echo x > $d/small || exit 3
          if head -c 2000000 /dev/zero > $d/long; then exit 4; fi
        done
        for f in /x /dev/x /home/x /workspace/x; do if echo x > $f; then exit 5; fi; done
        echo x > /dev/null");
    assert_eq!(done.verdict(), &Verdict::Passed);
}

/// Processes are counted where the kernel does that, and where it does not the record says so.
#[test]
fn processes_are_counted_or_it_is_said() {
    let rig = Rig::new();
    rig.configure("[audit]\nmax_processes = 20\n");
    let forks =
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do sleep 61.5 & done";
    let done = rig.sh(forks);
    let limits = done.audit.limits.clone().unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(limits.processes, None);
        assert_eq!(limits.not_enforced, ["audit.max_processes"]);
    } else {
        assert_eq!(limits.processes, Some(20));
        assert!(matches!(done.verdict(), Verdict::Failed { .. }), "{done:?}");
    }
    rig.configure("[audit]\nmax_tmp_bytes = 1_000_000\n");
    let limits = rig.bare("true").audit.limits.unwrap();
    assert_eq!(
        limits.not_enforced,
        ["audit.max_processes", "audit.max_tmp_bytes"]
    );
}

/// The defaults are above what test runners and compilers need: many threads and children, address space
/// that is only reserved, a file of some size.
#[test]
fn the_defaults_break_no_everyday_tool() {
    let rig = Rig::new();
    let script = "
import mmap, subprocess, threading
gate = threading.Event()
threads = [threading.Thread(target=gate.wait) for _ in range(300)]
[thread.start() for thread in threads]
children = [subprocess.Popen(['cat'], stdin=subprocess.PIPE) for _ in range(50)]
reserved = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
with open('/tmp/sparse', 'wb') as file:
    file.truncate(1 << 32)
gate.set()
[(child.stdin.close(), child.wait()) for child in children]
[thread.join() for thread in threads]
";
    assert_eq!(
        rig.audit(&["python3", "-c", script]).verdict(),
        &Verdict::Passed
    );
}
