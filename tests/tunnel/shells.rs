//! Login shells: every kind of them, and what their start-up files do to a link.

use labproxy::tunnel::ssh::failure::LinkFailure;
use labproxy::tunnel::ssh::master::Master;
use labproxy::tunnel::transport::Role;

use crate::rig::{Host, SHELLS, Setup, nonce};

/// TB-11: the helper runs whatever the login shell is; the second time without being sent.
#[tokio::test]
async fn tb11_the_helper_runs_behind_every_login_shell() {
    let host = Host::start();
    let local = host.local(&[]);
    for (shell, _) in SHELLS {
        let master = Master::connect(&host.spec(shell), &local)
            .await
            .unwrap_or_else(|error| panic!("{shell}: {error}\n{}", host.log()));
        for number in [1, 2] {
            let channel = master.helper(Role::Supervise, nonce(number)).await;
            drop(channel.unwrap_or_else(|error| panic!("{shell}: {error}")));
        }
        master.close().await;
        let installed = host.ask(&format!("ls -a /srv/home/{shell}/.labproxy/bin"));
        assert_eq!(installed.lines().count(), 3, "{shell}: {installed}");
    }
    host.assert_nothing_here();
    host.assert_quiet();
}

/// Starts the helper as the user with bash, whose start-up file is this.
async fn with_bashrc(text: &str) -> Result<(), LinkFailure> {
    let host = Host::with(Setup {
        files: vec![("bash", ".bashrc", text.to_owned())],
        ..Setup::default()
    });
    let master = Master::connect(&host.spec("bash"), &host.local(&[])).await?;
    let channel = master.helper(Role::Supervise, nonce(1)).await;
    master.close().await;
    host.assert_nothing_here();
    host.assert_quiet();
    channel.map(drop)
}

/// TB-9, M-68, Tunnel (7): banners on both outputs, with escapes and without a last new line, up to
/// 60 KiB, do not matter.
#[tokio::test]
async fn tb09_m68_tu07_chatty_start_up_files_do_not_matter() {
    let chatty = "echo one; echo two >&2; printf '\\033[31mthree'; printf '\\000lproxy\\001'; \
        head -c 60000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero | tr '\\0' y >&2";
    with_bashrc(chatty).await.unwrap();
}

/// M-68: what goes on printing is ended, and its first bytes are shown without their effect.
#[tokio::test]
async fn m68_noise_without_end_is_named() {
    let error = with_bashrc("printf '\\033]0;title\\007'; yes noise")
        .await
        .unwrap_err();
    assert!(matches!(error, LinkFailure::ShellNoise { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("\\x1b]0;title\\x07noise"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

/// A connection that is lost while the helper is started, before it is there or while it is sent, is what
/// is told: not that a login printed nothing.
#[tokio::test]
async fn a_connection_that_is_lost_meanwhile_is_named() {
    for login in [2, 3] {
        let lose = format!("echo >> ~/logins; [ $(wc -l < ~/logins) = {login} ] && kill -9 $PPID");
        let error = with_bashrc(&lose).await.unwrap_err();
        assert!(matches!(error, LinkFailure::LinkLost { .. }), "{error}");
    }
}

/// TB-10: a start-up file that exits is the cause that is told, with what it printed.
#[tokio::test]
async fn tb10_a_start_up_file_that_exits_is_named() {
    for (text, status) in [("echo goodbye; exit 0", 0), ("echo goodbye >&2; exit 7", 7)] {
        let error = with_bashrc(text).await.unwrap_err();
        let LinkFailure::GreetingNotSeen {
            printed,
            status: ended,
        } = &error
        else {
            panic!("{error}");
        };
        assert!(printed.contains("goodbye"), "{error}");
        assert!(ended.is_none_or(|ended| ended == status), "{error}");
        let shown = error.to_string();
        assert!(shown.contains("greeting was not seen"), "{shown}");
        assert!(error.remedy().contains("start-up files"));
    }
}

/// An account without a shell is told by what it prints.
#[tokio::test]
async fn an_account_without_a_shell_is_named() {
    let host = Host::start();
    let done = async {
        let master = Master::connect(&host.spec("nologin"), &host.local(&[])).await?;
        master.helper(Role::Supervise, nonce(1)).await.map(drop)
    };
    let error = done.await.unwrap_err();
    assert!(
        matches!(error, LinkFailure::GreetingNotSeen { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("not available"), "{error}");
}

/// TB-24: a Windows host is refused by name, from what its shell says of our command.
#[tokio::test]
async fn tb24_a_windows_host_is_named() {
    let text = "echo \"'exec' is not recognized as an internal or external command,\" >&2; exit 1";
    let error = with_bashrc(text).await.unwrap_err();
    let windows = LinkFailure::OtherSystem {
        system: "Windows".to_owned(),
    };
    assert_eq!(error, windows);
}
