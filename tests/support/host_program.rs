//! `labproxy-remote` for tests: as the package carries it, or as it was built alone.

use std::path::PathBuf;

/// Its file.
#[cfg(not(feature = "controller"))]
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_labproxy-remote"))
}

/// Its file, unpacked once for every build.
#[cfg(feature = "controller")]
pub fn path() -> PathBuf {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::LazyLock;

    static UNPACKED: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let digest = labproxy::tunnel::program::SHA256;
        let path = folder.join(format!("labproxy-remote-{digest}"));
        if !path.exists() {
            // Another test process may unpack it too: each writes its own and renames it.
            let own = folder.join(format!("unpacked-{}", std::process::id()));
            let program = zstd::decode_all(labproxy::tunnel::program::COMPRESSED).unwrap();
            fs::write(&own, program).unwrap();
            fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&own, &path).unwrap();
        }
        path
    });
    UNPACKED.clone()
}
