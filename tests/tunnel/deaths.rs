//! Deaths on this side: whatever is killed, nothing stays on either side.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use labproxy::tunnel::ssh::master::Master;
use labproxy::tunnel::transport::Role;

use crate::rig::{Host, nonce};

/// The test below as a process of its own, with the host's places.
fn controller(host: &Host) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "deaths::controller_process",
            "--ignored",
            "--nocapture",
        ])
        .env("LABPROXY_TEST_HOST", host.file("ssh_config"))
        .env("LABPROXY_TEST_HERE", host.here.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test by itself: a controller that is connected until it is killed.
#[tokio::test]
#[ignore = "started by other tests as a process of its own"]
async fn controller_process() {
    let (Some(config), Some(here)) = (
        std::env::var_os("LABPROXY_TEST_HOST"),
        std::env::var_os("LABPROXY_TEST_HERE"),
    ) else {
        return;
    };
    let local = crate::rig::local(here.as_ref(), &[]);
    let master = Master::connect(&crate::rig::spec(config.as_ref(), "bash"), &local)
        .await
        .unwrap();
    let _channel = master.helper(Role::Supervise, nonce(1)).await.unwrap();
    println!("connected");
    std::future::pending::<()>().await;
}

/// M-76: a controller that is killed takes its ssh with it, and leaves no file; on the host nothing
/// stays either.
#[tokio::test]
async fn m76_a_killed_controller_leaves_nothing() {
    let host = Host::start();
    let mut controller = controller(&host);
    let output = BufReader::new(controller.stdout.take().unwrap());
    assert!(
        output
            .lines()
            .any(|line| line.unwrap().contains("connected"))
    );
    assert_eq!(host.clients().len(), 1);
    controller.kill().unwrap();
    controller.wait().unwrap();
    host.eventually(|| host.clients().is_empty());
    host.assert_nothing_here();
    host.assert_quiet();
}

/// M-76, TB-25: killed while it connects, it leaves a directory; the next connection removes it.
#[tokio::test]
async fn m76_tb25_what_a_killed_start_left_is_removed_by_the_next() {
    let host = Host::start();
    // Takes the connection and says nothing.
    let silent = TcpListener::bind((host.address.as_str(), 2223)).unwrap();
    let config = std::fs::read_to_string(host.file("ssh_config")).unwrap();
    std::fs::write(
        host.file("ssh_config"),
        config.replace("Port 2222", "Port 2223"),
    )
    .unwrap();
    let mut controller = controller(&host);
    let _taken = silent.accept().unwrap();
    controller.kill().unwrap();
    controller.wait().unwrap();
    host.eventually(|| host.clients().is_empty());
    assert_eq!(std::fs::read_dir(host.here.path()).unwrap().count(), 1);
    std::fs::write(host.file("ssh_config"), config).unwrap();
    Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap()
        .close()
        .await;
    host.assert_nothing_here();
}

/// A connection that is dropped, or given up while it is made, ends by itself.
#[tokio::test]
async fn a_dropped_connection_ends() {
    let host = Host::start();
    let master = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap();
    drop(master);
    let (spec, local) = (host.spec("bash"), host.local(&[]));
    let made = Master::connect(&spec, &local);
    let given_up = tokio::time::timeout(std::time::Duration::from_millis(300), made).await;
    drop(given_up);
    // The runtime ends what was dropped; it runs only while this test waits.
    while !host.clients().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    host.assert_nothing_here();
    host.assert_quiet();
}
