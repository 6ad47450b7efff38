//! labproxy's library with a connection that stays open.

use labproxy::clock::SystemClock;
use labproxy::mirror::brakes::Allowed;
use labproxy::mirror::connect::Connected;
use labproxy::mirror::excludes::Frozen;
use labproxy::mirror::far::Far;
use labproxy::mirror::pair::{Ends, Local, Pair};
use labproxy::mirror::progress::Unwatched;
use labproxy::mirror::pull::{PullOptions, Workspace};
use labproxy::mirror::stop::Stop;
use labproxy::tree::limits::Limits;
use labproxy::tunnel::carrier;
use labproxy::tunnel::host::HostSpec;
use labproxy::wire::bytes::ByteString;
use labproxy::wire::mirror::RootState;

use crate::report::Who;
use crate::rig::{HOST, Rig};

/// A mirror that is open, with a helper at the other end.
pub struct Resident {
    pair: Pair,
    local: Local,
    state: RootState,
    connected: Option<Connected>,
    _runtime: tokio::runtime::Runtime,
}

impl Resident {
    pub fn connect(rig: &Rig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut spec = HostSpec::new(HOST.parse().unwrap());
        spec.ssh_config = Some(rig.ssh_config());
        let workdir = rig.path("there");
        spec.workdir = workdir.to_str().unwrap().parse().unwrap();
        let transport =
            carrier::over_ssh(HOST, &spec, std::env::vars_os(), rig.run.path()).unwrap();
        let limits = Limits::default();
        let mut connected =
            Connected::over(&*transport, runtime.handle(), limits, &Stop::default()).unwrap();
        let (local, _) = Local::open_or_make(&rig.copy(Who::Resident)).unwrap();
        let path = ByteString::from(rig.source().as_os_str());
        let far = Far::Host {
            host: HOST.to_owned(),
            path: path.clone(),
        };
        let place = rig.path("own/mirror");
        let pair = Pair::open(&place, &local, &far, Frozen::default(), limits).unwrap();
        let there = ByteString::from(workdir.as_os_str());
        let state = connected.peer.open(path, there, pair.id()).unwrap();
        Self {
            pair,
            local,
            state,
            connected: Some(connected),
            _runtime: runtime,
        }
    }

    /// Pulls.
    pub fn pull(&mut self) {
        let mut ends = Ends {
            rsync: None,
            peer: &mut self.connected.as_mut().unwrap().peer,
            state: &self.state,
            local: &mut self.local,
            progress: &Unwatched,
            clock: &SystemClock,
        };
        let options = PullOptions {
            allowed: Allowed::ALL,
            generation_only: false,
        };
        let pulled = self.pair.pull(&mut ends, options).unwrap();
        match pulled.workspace {
            Workspace::Brought { kept, .. } => assert!(kept.is_empty(), "{kept:?}"),
            other => panic!("the workspace did not follow: {other:?}"),
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Some(connected) = self.connected.take() {
            connected.close();
        }
    }
}
