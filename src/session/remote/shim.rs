//! The shim of a session on a host, while it is there: what it starts, and the file that an SDK is given.

use std::path::Path;
use std::sync::Arc;

use super::open::Remote;
use crate::escape::escape;
use crate::proxy::Proxy;
use crate::report::{Failure, tell};
use crate::secret::Credential;
use crate::session::carry::{Carrier, Program, Wanted, Watch};
use crate::session::live::{Access, Live};
use crate::session::remote::plan::PlannedHost;
use crate::session::shim::conversation::{Asked, Launcher, Running};
use crate::session::shim::script::{Script, ShimFile};
use crate::session::shim::service::ShimServer;
use crate::table::Style;
use crate::tunnel::error::TunnelError;
use crate::tunnel::exec::Stdio;
use crate::tunnel::session::Launches;

/// The name of its socket in the session's directory of sockets.
const SOCKET: &str = "shim.sock";

/// An open shim, until it is dropped: first the file goes away.
#[derive(Debug)]
pub struct OpenShim {
    script: Script,
    server: ShimServer,
}

impl OpenShim {
    /// Serves launches of `program`, which answered `version`, and writes the file.
    ///
    /// # Errors
    /// When the socket or the file cannot be made.
    pub fn open(
        file: &ShimFile,
        program: Program,
        version: &str,
        (live, host, remote): (&Live, &PlannedHost, &Remote),
        access: &Access,
    ) -> Result<Self, Failure> {
        let socket = live.sockets.join(SOCKET);
        let launcher = HostLauncher {
            launches: remote.tunnel.launches().clone(),
            carrier: Remote::carrier(host, access),
            credential: Arc::clone(&access.credential),
            proxy: Arc::clone(&live.proxy),
            program,
            host: host.name.clone(),
        };
        let server = ShimServer::start(&socket, Arc::new(launcher)).map_err(|error| {
            Failure::because(
                format!("the shim's socket {} cannot be made", socket.display()),
                &error,
            )
        })?;
        let labproxy = std::env::current_exe()
            .map_err(|error| Failure::because("labproxy's own file cannot be found", &error))?;
        let script = file.write(&live.session, &labproxy, &socket, version)?;
        Ok(Self { script, server })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.script.path()
    }

    /// Says so when it was of no use.
    pub fn tell_use(&self) {
        if self.server.launches() == 0 {
            tell(&format!(
                "labproxy: nothing was started through the shim {}: an SDK takes it as cli_path \
                 (Python) or pathToClaudeCodeExecutable (TypeScript)\n",
                escape(self.script.path().as_os_str().as_encoded_bytes())
            ));
        }
    }
}

/// Starts the CLI on the host for shims.
struct HostLauncher {
    launches: Launches,
    carrier: Carrier,
    /// The credential that the session began with; the proxy may have another one by now.
    credential: Arc<Credential>,
    proxy: Arc<Proxy>,
    program: Program,
    host: String,
}

impl Launcher for HostLauncher {
    fn launch(&self, asked: Asked, stdio: Stdio) -> Result<Box<dyn Running>, String> {
        let carrier = Carrier {
            watch: self.watch(),
            ..self.carrier.clone()
        };
        let wanted = Wanted {
            arguments: &asked.arguments,
            environment: asked.environment,
            directory: &asked.directory,
            terminal: None,
        };
        let spec = carrier.carry(wanted, &self.program).map_err(|refused| {
            let failure = Failure::usage(format!("the agent cannot be sent to {}", self.host));
            text(&failure.caused_by(&refused).hint(refused.remedy()))
        })?;
        let exec = self.launches.launch(&spec, stdio).map_err(|error| {
            text(&Failure::because(
                format!("the agent cannot be sent to {}", self.host),
                &error,
            ))
        })?;
        Ok(Box::new(exec))
    }

    fn watch(&self) -> Arc<Watch> {
        let now = self.proxy.credential();
        Arc::new(Watch::of(&self.credential).and(&now))
    }

    fn lost(&self, error: &TunnelError) -> String {
        text(&error.failure(&self.host))
    }
}

fn text(failure: &Failure) -> String {
    failure.render(Style::Plain)
}
