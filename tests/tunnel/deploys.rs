//! The helper on its way to the host: what stands in its place, where it can be put, and what else
//! is there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::tunnel::program::{Program, SHA256};
use labproxy::tunnel::ssh::failure::LinkFailure;
use labproxy::tunnel::ssh::master::Master;
use labproxy::tunnel::transport::Role;

use crate::rig::{Host, Setup, nonce};

async fn helped(host: &Host) -> Result<(), LinkFailure> {
    helped_as(host, "bash").await
}

async fn helped_as(host: &Host, user: &str) -> Result<(), LinkFailure> {
    let master = Master::connect(&host.spec(user), &host.local(&[])).await?;
    let channel = master.helper(Role::Supervise, nonce(1)).await;
    master.close().await;
    channel.map(drop)
}

/// Where the helper is put for the user with bash, as this side sees it.
fn installed(host: &Host) -> PathBuf {
    host.file("home/bash/.labproxy/bin")
        .join(format!("labproxy-remote-{SHA256}"))
}

/// Tunnel, T28: what is cut, altered, a link or a directory in the helper's place is replaced, never
/// run.
#[tokio::test]
async fn t28_what_is_not_the_helper_is_replaced_and_never_run() {
    let host = Host::start();
    helped(&host).await.unwrap();
    let path = installed(&host);
    let whole = Program::own().bytes().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o500);
    let evil = "#!/bin/sh\ntouch /tmp/evil\n";
    host.ask("printf '#!/bin/sh\\ntouch /tmp/evil\\n' >/srv/evil; chmod 755 /srv/evil");
    let places: [&dyn Fn(); 5] = [
        &|| fs::write(&path, &whole[..whole.len() / 2]).unwrap(),
        &|| fs::write(&path, evil).unwrap(),
        &|| fs::write(&path, "").unwrap(),
        &|| std::os::unix::fs::symlink("/srv/evil", &path).unwrap(),
        &|| fs::create_dir(&path).unwrap(),
    ];
    for (number, place) in places.into_iter().enumerate() {
        fs::remove_file(&path).unwrap();
        place();
        if path.is_file() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        helped(&host)
            .await
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(!path.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), whole, "{number}");
    }
    assert_eq!(host.ask("ls /tmp/evil"), "");
    let left = host.ask("ls -A /srv/home/bash/.labproxy/bin");
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// T28: a program that takes the helper's place 10,000 times, between every two steps of a start, is
/// not run once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_a_swap_loop_never_gets_a_foreign_program_run() {
    let host = Host::start();
    helped(&host).await.unwrap();
    let path = installed(&host);
    let (good, evil, next) = (
        path.with_extension("good"),
        path.with_extension("evil"),
        path.with_extension("next"),
    );
    fs::copy(&path, &good).unwrap();
    fs::write(&evil, "#!/bin/sh\ntouch /srv/home/bash/evil\n").unwrap();
    for file in [&good, &evil] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(file, Some(30_003), Some(30_003)).unwrap();
    }
    let (done, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut started = 0;
    let master = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for source in [&evil, &good] {
                    fs::hard_link(source, &next).unwrap();
                    fs::rename(&next, &path).unwrap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            for number in 0..200 {
                let start = master.helper(Role::Supervise, nonce(number));
                match runtime.block_on(start) {
                    Ok(channel) => {
                        started += 1;
                        runtime.block_on(drop_ended(channel));
                    }
                    Err(LinkFailure::HelperCannotRun { .. }) => {}
                    Err(error) => {
                        done.store(true, Ordering::Relaxed);
                        panic!("{error}");
                    }
                }
                if number >= 20 && swaps.load(Ordering::Relaxed) >= 10_000 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    assert!(swaps.into_inner() >= 10_000);
    assert!(started > 0, "some starts found the helper");
    assert!(!host.file("home/bash/evil").exists());
    master.close().await;
}

/// Ends a helper and waits for it, so that its channel is free.
async fn drop_ended(channel: labproxy::tunnel::deploy::Channel) {
    drop(channel.writer);
    channel.life.ended().await;
}

/// M-74: where the home runs no programs, another directory does.
#[tokio::test]
async fn m74_a_home_that_runs_no_programs_is_passed_over() {
    let host = Host::with(Setup {
        prepare: "mount -t tmpfs -o noexec,uid=30003,mode=755 tmpfs /srv/home/bash".to_owned(),
        ..Setup::default()
    });
    helped(&host).await.unwrap();
    assert!(host.ask("ls /var/tmp/labproxy-30003").contains(SHA256));
    assert_eq!(host.ask("ls -A /srv/home/bash/.labproxy/bin"), "");
}

/// M-74: a home that cannot be written to, or does not exist, is passed over.
#[tokio::test]
async fn m74_a_home_that_cannot_be_written_is_passed_over() {
    for prepare in ["chown root /srv/home/bash", "rm -r /srv/home/bash"] {
        let host = Host::with(Setup {
            prepare: prepare.to_owned(),
            ..Setup::default()
        });
        helped(&host).await.unwrap();
        assert!(host.ask("ls /var/tmp/labproxy-30003").contains(SHA256));
    }
}

/// M-74: the directory is ours alone whatever the login's umask is, and long or odd names of it do
/// not matter.
#[tokio::test]
async fn m74_umasks_and_odd_directories_do_not_matter() {
    for umask in ["000", "077", "777"] {
        let host = Host::with(Setup {
            files: vec![("bash", ".bashrc", format!("umask {umask}\ncd /"))],
            ..Setup::default()
        });
        for name in [
            "x".repeat(200),
            "with space/and'quote/$(touch evil)*".to_owned(),
        ] {
            let mut spec = host.spec("bash");
            let workdir = format!("/srv/home/bash/{name}");
            spec.workdir = workdir.parse().unwrap();
            let master = Master::connect(&spec, &host.local(&[])).await.unwrap();
            master.helper(Role::Supervise, nonce(1)).await.unwrap();
            master.close().await;
            let bin = host.file("home/bash").join(&name).join("bin");
            assert_eq!(bin.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            assert_eq!(fs::read_dir(&bin).unwrap().count(), 1);
        }
        // Wherever this user may write, and nowhere that other tests do.
        assert_eq!(host.ask("find /srv /tmp /var/tmp -name evil"), "");
    }
}

/// T28, M-74: directories that are somebody else's, a link, or open to others are not used; when
/// none is left, each is named with its reason.
#[tokio::test]
async fn t28_m74_directories_that_are_not_ours_alone_are_named() {
    let host = Host::with(Setup {
        prepare: "mkdir -p /srv/home/bash/.labproxy/bin /tmp/labproxy-30003 /tmp/other\n\
            chown -R tbash /srv/home/bash/.labproxy; chmod 770 /srv/home/bash/.labproxy/bin\n\
            ln -s /tmp/other /var/tmp/labproxy-30003; chown -h tbash /var/tmp/labproxy-30003\n\
            chown tdash /tmp/labproxy-30003; chmod 777 /tmp/labproxy-30003"
            .to_owned(),
        ..Setup::default()
    });
    let error = helped(&host).await.unwrap_err();
    let LinkFailure::NoDirectory { tried } = &error else {
        panic!("{error}");
    };
    let tried: Vec<_> = tried
        .iter()
        .map(|one| (one.path.as_str(), one.why.as_str()))
        .collect();
    assert_eq!(
        tried,
        [
            ("/srv/home/bash/.labproxy/bin", "is open to others"),
            ("/var/tmp/labproxy-30003", "is a link"),
            ("/tmp/labproxy-30003", "belongs to somebody else"),
        ]
    );
    let text = error.to_string();
    assert!(
        !text.contains('\n') && text.contains("belongs to somebody else"),
        "{text}"
    );
    assert_eq!(
        host.ask("ls -A /tmp/other /tmp/labproxy-30003 | grep remote"),
        ""
    );
}

const SMALL: &str = "mount -t tmpfs -o size=1m,mode=1777 tmpfs";

/// A disk that fills up while the helper is sent: another directory is taken.
#[tokio::test]
async fn a_disk_that_fills_up_is_passed_over() {
    let host = Host::with(Setup {
        prepare: format!("{SMALL} /srv/home/bash"),
        ..Setup::default()
    });
    helped(&host).await.unwrap();
    assert!(host.ask("ls /var/tmp/labproxy-30003").contains(SHA256));
    assert_eq!(
        host.ask("ls -A /srv/home/bash/.labproxy/bin"),
        "",
        "nothing half sent stays"
    );
}

/// When every disk fills up, that is the reason, and nothing half sent stays.
#[tokio::test]
async fn full_disks_are_named() {
    let host = Host::with(Setup {
        prepare: format!("for d in /srv/home/bash /var/tmp /tmp; do {SMALL} $d; done"),
        ..Setup::default()
    });
    let error = helped(&host).await.unwrap_err();
    assert!(matches!(error, LinkFailure::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    let left = host.ask("find /srv/home/bash /var/tmp /tmp -type f");
    assert_eq!(left, "");
}

/// M-74: with no room for a single file, the same.
#[tokio::test]
async fn m74_a_disk_without_any_room_is_named() {
    let host = Host::with(Setup {
        prepare: format!(
            "for d in /srv/home/bash /var/tmp /tmp; do {SMALL} $d; \
             head -c 2000000 /dev/zero >$d/ballast 2>/dev/null || true; done"
        ),
        ..Setup::default()
    });
    let error = helped(&host).await.unwrap_err();
    assert!(matches!(error, LinkFailure::DiskFull { .. }), "{error}");
}

/// A host that cannot prove a content gets the helper anew for every start, and keeps none.
#[tokio::test]
async fn without_a_way_to_prove_it_the_helper_is_sent_each_time() {
    let host = Host::with(Setup {
        prepare: "mount --bind /dev/null /usr/bin/sha256sum".to_owned(),
        ..Setup::default()
    });
    let bin = host.file("home/bash/.labproxy/bin");
    for _ in 0..2 {
        helped(&host).await.unwrap();
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
        // What stands there under its name cannot be proven, so it is not run.
        let path = installed(&host);
        fs::write(&path, "#!/bin/sh\ntouch /srv/home/bash/evil\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&path, Some(30_003), None).unwrap();
        helped(&host).await.unwrap();
        assert!(!host.file("home/bash/evil").exists());
        fs::remove_file(&path).unwrap();
    }
}

/// Another architecture, for which there is no helper, and another system are named.
#[tokio::test]
async fn another_architecture_or_system_is_named() {
    let uname = |words: &str| Setup {
        files: vec![
            ("bash", ".bashrc", "PATH=$HOME/bin:$PATH".to_owned()),
            ("bash", "bin/uname", format!("#!/bin/sh\n{words}\n")),
        ],
        prepare: "chmod 755 /srv/home/bash/bin/uname".to_owned(),
        ..Setup::default()
    };
    let host = Host::with(uname("echo Linux riscv64"));
    let error = helped(&host).await.unwrap_err();
    let wanted = LinkFailure::NoHelper {
        architecture: "riscv64".to_owned(),
    };
    assert_eq!(error, wanted);
    assert!(error.remedy().contains("riscv64"));
    let host = Host::with(uname("echo Darwin"));
    let error = helped(&host).await.unwrap_err();
    assert_eq!(error.to_string(), "the host runs Darwin");
}

/// M-78: a working directory below a link, whoever owns it, is used where the link leads.
#[tokio::test]
async fn m78_a_working_directory_behind_a_link_works() {
    let host = Host::with(Setup {
        prepare: "mkdir /srv/real; chown tbash /srv/real; ln -s /srv/real /srv/link; \
            chown -h tdash /srv/link"
            .to_owned(),
        ..Setup::default()
    });
    let mut spec = host.spec("bash");
    spec.workdir = "/srv/link/lp".parse().unwrap();
    let master = Master::connect(&spec, &host.local(&[])).await.unwrap();
    master.helper(Role::Supervise, nonce(1)).await.unwrap();
    master.close().await;
    assert!(host.ask("ls /srv/real/lp/bin").contains(SHA256));
}

/// TB-13: after a new version was started, an old one that nobody runs is gone, and one that
/// somebody runs is not.
#[tokio::test]
async fn tb13_old_helpers_are_removed_once_nobody_runs_them() {
    let host = Host::start();
    let master = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap();
    let running = master.helper(Role::Supervise, nonce(1)).await.unwrap();
    let path = installed(&host);
    let old = |digit: &str| path.with_file_name(format!("labproxy-remote-{}", digit.repeat(64)));
    // The running one becomes an old version of a name that nobody asks for.
    fs::rename(&path, old("a")).unwrap();
    fs::copy(old("a"), old("b")).unwrap();
    std::os::unix::fs::chown(old("b"), Some(30_003), None).unwrap();
    let other = path.with_file_name("something-else");
    fs::write(&other, "").unwrap();
    helped(&host).await.unwrap();
    assert!(path.exists() && old("a").exists() && other.exists());
    assert!(!old("b").exists(), "nobody runs it");
    drop_ended(running).await;
    helped(&host).await.unwrap();
    assert!(!old("a").exists(), "nobody runs it any more");
    master.close().await;
}
