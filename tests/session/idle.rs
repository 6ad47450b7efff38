//! Children of labproxy that outlive its idle threads: a death signal comes when the thread that
//! started a child ends, not when the process does.

use crate::rig::{KEY, Rig, finish};

/// Seconds; longer than the runtime keeps a thread for blocking work that has nothing to do (ten).
/// The soak waits for a minute.
fn idle() -> u64 {
    std::env::var("LABPROXY_SOAK_IDLE_SECONDS").map_or(12, |seconds| seconds.parse().unwrap())
}

/// The agent goes on while threads of labproxy end beside it.
#[test]
fn t39_an_agent_outlives_labproxys_idle_threads() {
    let rig = Rig::new();
    // A file is read on a thread of its own, which has nothing to do afterwards.
    let file = rig.write_program("key", KEY);
    let credential = format!("file:{}", file.display());
    let seconds = idle();
    let script = format!(
        "threads() {{ ls /proc/$PPID/task | wc -l; }}
         before=$(threads); sleep {seconds}; [ $(threads) -lt $before ] || exit 8
         [ \"$(\"$CALL\" hello)\" = 200 ] || exit 9; exit 7"
    );
    let options = [
        "--upstream",
        &rig.standin.url(),
        "--credential",
        &credential,
    ];
    let agent = ["--cap", "2", "--", "sh", "-c", &script];
    let arguments = [&["session", "start"][..], &options, &agent].concat();
    // Ended by the script itself, which may take longer than the rig's patience.
    let done = rig.command(&arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{done:?}");
}

/// A credential command that takes longer than an idle thread lives is not cut off.
#[test]
fn t39_a_credential_command_outlives_labproxys_idle_threads() {
    let rig = Rig::new();
    // The command itself may take 30 s.
    let seconds = idle().min(25);
    let config = rig.path("config").join("labproxy");
    std::fs::create_dir_all(&config).unwrap();
    let line = format!(
        "[upstream.anthropic]\nbase_url = {:?}\n\
         credential = {{ command = [\"sh\", \"-c\", \"sleep {seconds}; printf {KEY}\"] }}\n",
        rig.standin.url()
    );
    std::fs::write(config.join("config.toml"), line).unwrap();
    let agent = "[ \"$(\"$CALL\" hello)\" = 200 ] && exit 7";
    let arguments = ["session", "start", "--cap", "2", "--", "sh", "-c", agent];
    let done = finish(&mut rig.command(&arguments));
    assert_eq!(done.code, Some(7), "{done:?}");
}
