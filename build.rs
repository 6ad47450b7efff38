//! Builds `labproxy-remote`, the program for the host, and puts it compressed with its digest where
//! `src/tunnel/program.rs` includes it. An inner `cargo` with a target directory and profile of its
//! own: the outer one's lock, flags and features must not reach it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script fails by panicking"
)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest as _, Sha256};

/// Tells the inner build that it is one. A look at features would not do: they are the same.
const INNER: &str = "LABPROXY_REMOTE_BUILD";
/// The program travels to every host: what a release builds is no longer than this, 2.25 MiB.
const PROGRAM_MAX: usize = 9 * 256 * 1024;
/// Of zstd the host needs its quickest level and to unpack: the rest is left out, and what makes one
/// machine in two a little quicker. C has no panics to unwind for.
const C_FLAGS: &str = "-DZSTD_EXCLUDE_DFAST_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR \
     -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR \
     -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR \
     -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR -DHUF_FORCE_DECOMPRESS_X1=1 \
     -DZSTD_FORCE_DECOMPRESS_SEQUENCES_SHORT=1 -DZSTD_STRIP_ERROR_STRINGS=1 -DDYNAMIC_BMI2=0 \
     -fno-asynchronous-unwind-tables";
/// Static, and without tables for unwinding nor an index of them: a panic ends the process.
const RUST_FLAGS: &str = "-C target-feature=+crt-static -C force-unwind-tables=no \
     -C link-arg=-Wl,--no-eh-frame-hdr";
/// What the program is made of.
const SOURCES: [&str; 8] = [
    "build.rs",
    "Cargo.toml",
    "Cargo.lock",
    "src/lib.rs",
    "src/processes.rs",
    "src/remote",
    "src/tree",
    "src/wire",
];

fn main() {
    println!("cargo::rerun-if-changed=src/bin");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed={INNER}");
    if env::var_os(INNER).is_some() || env::var_os("CARGO_FEATURE_CONTROLLER").is_none() {
        return;
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let program = fs::read(build(&out)).expect("the program that was built can be read");
    let released = variable("PROFILE") == "release";
    let length = program.len();
    assert!(
        !released || length <= PROGRAM_MAX,
        "labproxy-remote has {length} bytes, and {PROGRAM_MAX} is the most"
    );
    let mut digest = String::new();
    for byte in Sha256::digest(&program) {
        write!(digest, "{byte:02x}").expect("a string takes text");
    }
    let compressed = zstd::encode_all(&program[..], 19).expect("memory can be compressed");
    fs::write(out.join("labproxy-remote.zst"), compressed).expect("the output directory is ours");
    // A file and no variable: cargo would hand that to every program it runs, and labproxy refuses
    // settings in its environment that it does not know.
    fs::write(out.join("labproxy-remote.sha256"), digest).expect("the output directory is ours");
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

/// Builds the program and gives its path.
fn build(out: &Path) -> PathBuf {
    let target = variable("TARGET").into_string().expect("a target is text");
    let mut cargo = Command::new(variable("CARGO"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let outer = text.starts_with("CARGO") || text.starts_with("RUST") || text == "TARGET";
        if outer && text != "CARGO_HOME" && text != "RUSTUP_HOME" && text != "RUSTUP_TOOLCHAIN" {
            cargo.env_remove(&name);
        }
    }
    // Who edits and tests waits for this build each time: half a minute with the release's.
    let profile = match variable("PROFILE").to_str() {
        Some("release") => "remote",
        _ => "remote-dev",
    };
    let folder = out.join("remote");
    cargo
        .env(INNER, "1")
        .env("RUSTFLAGS", RUST_FLAGS)
        .env("CFLAGS", C_FLAGS)
        .arg("build")
        .args(["--profile", profile, "--bin", "labproxy-remote"])
        .args(["--no-default-features", "--features", "remote"])
        .args(["--target", &target, "--locked", "--quiet"])
        .arg("--target-dir")
        .arg(&folder)
        .arg("--manifest-path")
        .arg(Path::new(&variable("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "labproxy-remote cannot be built");
    folder.join(&target).join(profile).join("labproxy-remote")
}
