//! `[host.NAME]`: what can be said of a remote machine, and what is refused.

use super::super::{HostConfig, HostKey, HostName, Source};
use super::User;

/// The host `gpu1` of a user's file with these settings.
fn gpu1(settings: &str) -> HostConfig {
    let user = User::new().user_file(&format!("[host.gpu1]\n{settings}"));
    user.load().unwrap().hosts["gpu1"].clone()
}

/// A host needs nothing but a name, which ssh resolves; all else has a default.
#[test]
fn a_name_is_enough() {
    let host = gpu1("");
    assert_eq!(host.ssh.value, "gpu1");
    assert_eq!(host.workdir.value, "~/.labproxy");
    assert_eq!(host.ssh.source, Source::Default);
    let off = [&host.tcp_fallback, &host.accept_new_host_key, &host.sudo];
    assert!(off.iter().all(|flag| !flag.value));
    let free = HostConfig::unconfigured("ada@gpu2");
    assert_eq!((free.ssh.value.as_str(), free.user), ("ada@gpu2", None));
}

/// Every setting is read, with its place; paths of the controller start from the file's directory
/// and those of the host stay as they are.
#[test]
fn every_setting_of_a_host_is_read() {
    let text = "\
[host.gpu1]
ssh = \"gpu.lab.example\"
user = \"ada\"
port = 2222
key_path = \"keys/lab\"
ssh_config = \"~/lab.conf\"
workdir = \"~/work\"
tcp_fallback = true
accept_new_host_key = true
sudo = true
gpu_ids = [\"GPU-5a8e34c2-0b1d\", \"1\"]
setup_commands = [\"module load cuda/12.0\"]
";
    let user = User::new().user_file(text);
    let host = user.load().unwrap().hosts["gpu1"].clone();
    assert_eq!(host.ssh.value, "gpu.lab.example");
    assert_eq!(host.user.unwrap().value, "ada");
    let port = host.port.unwrap();
    assert_eq!(port.value, 2222);
    assert_eq!(port.source, super::file(&user.paths().user_config(), 4));
    let config = user.paths().config().to_owned();
    assert_eq!(host.key_path.unwrap().value, config.join("keys/lab"));
    assert_eq!(host.ssh_config.unwrap().value, user.home().join("lab.conf"));
    assert_eq!(host.workdir.value, "~/work");
    assert!(host.tcp_fallback.value && host.accept_new_host_key.value && host.sudo.value);
    assert_eq!(host.gpu_ids.value.len(), 2);
    assert_eq!(host.setup_commands.value, ["module load cuda/12.0"]);
}

/// A variable changes a setting of a host that a file names, whatever the case and the signs of
/// the name.
#[test]
fn variables_set_what_belongs_to_a_named_host() {
    let user = || User::new().user_file("[host.gpu-1]\nport = 1\n[host.\"a.b\"]\n");
    let host = |user: &User, name: &str| user.load().unwrap().hosts[name].clone();
    let changed = user().variable("LABPROXY_HOST_GPU_1_PORT", "22");
    let port = host(&changed, "gpu-1").port.unwrap();
    assert_eq!(port.value, 22);
    let name = "LABPROXY_HOST_GPU_1_PORT".to_owned();
    assert_eq!(port.source, Source::Variable(name));
    let changed = user().variable("LABPROXY_HOST_A_B_KEY_PATH", "/k");
    assert_eq!(
        host(&changed, "a.b").key_path.unwrap().value.to_str(),
        Some("/k")
    );
    for (name, value, says) in [
        (
            "LABPROXY_HOST_GPU2_PORT",
            "22",
            "no setting of a configured host",
        ),
        (
            "LABPROXY_HOST_GPU_1_PRT",
            "22",
            "no setting of a configured host",
        ),
        ("LABPROXY_HOST_GPU_1_PORT", "0", "from 1 to 65535"),
        ("LABPROXY_HOST_GPU_1_SETUP_COMMANDS", "ls", "set in a file"),
    ] {
        let problems = user().variable(name, value).problems();
        assert_eq!(problems.len(), 1, "{name}: {problems:?}");
        assert!(problems[0].starts_with(name), "{problems:?}");
        assert!(problems[0].contains(says), "{problems:?}");
    }
    let twins = User::new().user_file("[host.a-b]\n[host.a_b]\n");
    let problems = twins.variable("LABPROXY_HOST_A_B_PORT", "22").problems();
    assert!(
        problems[0].ends_with("it could mean host.a-b.port or host.a_b.port; set that in a file"),
        "{problems:?}"
    );
}

/// Each bad value is named with its setting and line.
#[test]
fn bad_values_of_a_host_are_named() {
    for (line, says) in [
        ("ssh = \"-oProxyCommand=x\"", "cannot begin with '-'"),
        ("ssh = \"ada@-x\"", "cannot begin with '-'"),
        ("ssh = \"gpu lab\"", "cannot hold ' '"),
        ("ssh = \"\"", "a host is missing"),
        ("ssh = \"ada@\"", "a host is missing"),
        ("ssh = \"ssh://gpu:0\"", "is no port"),
        ("ssh = 1", "found a number"),
        ("user = \"-l\"", "does not begin with '-'"),
        ("user = \"a@b\"", "has no '@'"),
        ("port = 65536", "from 1 to 65535"),
        ("port = \"22\"", "found a string"),
        ("key_path = \"\"", "found nothing"),
        ("workdir = \"work\"", "a workdir is"),
        ("workdir = \"/\"", "a workdir is"),
        ("workdir = \"~bob/x\"", "a workdir is"),
        ("workdir = \"~/a/../..\"", "a workdir is"),
        ("workdir = \"/a\\nb\"", "a workdir is"),
        ("tcp_fallback = \"yes\"", "found a string"),
        ("gpu_ids = [\"cuda:0\"]", "is no GPU"),
        ("gpu_ids = [\"GPU-\"]", "is no GPU"),
        ("gpu_ids = [\"0\", \"0\"]", "stands there twice"),
        ("gpu_ids = [0]", "found a number"),
        ("setup_commands = \"ls\"", "found a string"),
        ("setup_commands = [\" \"]", "empty command"),
    ] {
        let user = User::new().user_file(&format!("[host.gpu1]\n{line}\n"));
        let problems = user.problems();
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        let (key, _) = line.split_once(' ').unwrap();
        let at = format!("~/.config/labproxy/config.toml:2: host.gpu1.{key}: ");
        assert!(problems[0].starts_with(&at), "{problems:?}");
        assert!(problems[0].contains(says), "{line}: {problems:?}");
    }
}

/// Bad names, stray values and misspelt keys are told at once, each with its line.
#[test]
fn what_is_no_host_is_told_at_once() {
    let user = User::new().user_file(
        "[host]\nssh = \"gpu\"\n[host.-x]\n[host.\"a b\"]\n[host.gpu1]\nprot = 22\n\
         ssh = \"ada@gpu\"\nuser = \"bob\"\n[hosts.gpu2]\n",
    );
    let at = "~/.config/labproxy/config.toml";
    let name = "a host's name is made of letters, digits, '.', '-' and '_', begins with a letter \
                or a digit, and has 64 characters at most";
    assert_eq!(
        user.problems(),
        [
            format!("{at}:2: host.ssh: expected a table [host.NAME]"),
            format!("{at}:3: host.'-x': {name}"),
            format!("{at}:4: host.'a b': {name}"),
            format!("{at}:6: unknown key 'host.gpu1.prot' (did you mean 'port'?)"),
            format!("{at}:9: unknown section 'hosts' (did you mean 'host'?)"),
            format!(
                "{at}:8: host.gpu1.user: 'ada@gpu' from {at}:7 names one already; keep one of the \
                 two"
            ),
        ]
    );
    let problems = User::new().user_file("host = 1").problems();
    assert_eq!(
        problems,
        [format!("{at}:1: host: expected tables [host.NAME]")]
    );
}

/// A working directory's file names no host and changes none; a host that only it names is none.
#[test]
fn t01_a_working_file_sets_nothing_of_a_host() {
    for key in HostKey::ALL {
        let value = match key {
            HostKey::Port => "1",
            HostKey::TcpFallback | HostKey::AcceptNewHostKey | HostKey::Sudo => "true",
            HostKey::GpuIds => "[\"0\"]",
            HostKey::SetupCommands => "[\"touch canary\"]",
            HostKey::Ssh | HostKey::User => "\"evil.example\"",
            HostKey::KeyPath | HostKey::SshConfig | HostKey::Workdir => "\"/evil\"",
        };
        for user in [User::new(), User::new().user_file("[host.gpu1]\n")] {
            let text = format!("[host.gpu1]\n{} = {value}\n", key.name());
            let problems = user.working_file(&text).problems();
            let name = key.of(&"gpu1".parse::<HostName>().unwrap());
            assert_eq!(
                problems,
                [format!(
                    "labproxy.toml:2: {name}: a working directory's file does not set this; set it \
                     in ~/.config/labproxy/config.toml, or trust this file: labproxy config trust \
                     ./labproxy.toml"
                )]
            );
        }
    }
    let user = User::new().working_file("[host.gpu1]\n");
    assert!(user.load().unwrap().hosts.is_empty());
}

/// The listing has every setting of every host, with its source; a name with a point is quoted.
#[test]
fn hosts_are_shown_after_the_settings() {
    let user = User::new().user_file("[host.b]\nport = 7\n[host.\"a.example\"]\n");
    let list = super::super::show::entries(&user.load().unwrap());
    let (_, hosts) = list.split_at(super::Key::ALL.len());
    let names: Vec<&str> = hosts.iter().map(|entry| entry.key.as_ref()).collect();
    let all = |name: &str| {
        let of = |key: &HostKey| format!("host.{name}.{}", key.name());
        HostKey::ALL.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(names, [all("\"a.example\""), all("b")].concat());
    let port = hosts
        .iter()
        .find(|entry| entry.key == "host.b.port")
        .unwrap();
    assert_eq!(port.value, 7);
    assert_eq!(port.source, super::file(&user.paths().user_config(), 2));
}
