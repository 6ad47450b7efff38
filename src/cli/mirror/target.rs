//! Which mirror a command means: two ends, or the workspace of a session.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Context;
use crate::mirror::ends::{Around, Ends, Opened};
use crate::mirror::excludes::Frozen;
use crate::mirror::far::Far;
use crate::mirror::pair::{Local, Pair};
use crate::mirror::pull::Pulled;
use crate::mirror::push::Pushed;
use crate::mirror::stop::Stop;
use crate::report::Failure;
use crate::session::lookup;
use crate::session::workspace::alone;
use crate::session::workspace::mirror::SessionMirror;

/// The two ends, or a session that has both.
#[derive(Debug, Args)]
pub(super) struct EndArgs {
    /// The directory here
    #[arg(required_unless_present = "session", conflicts_with = "session")]
    local: Option<PathBuf>,
    /// The other end: HOST:PATH, or a directory of this machine
    #[arg(
        value_name = "HOST:PATH",
        required_unless_present = "session",
        conflicts_with = "session"
    )]
    far: Option<OsString>,
    /// The workspace of this session (or the beginning of its name) in place of both ends
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

impl EndArgs {
    /// The arguments as another command took them apart.
    pub(super) const fn new(
        local: Option<PathBuf>,
        far: Option<OsString>,
        session: Option<String>,
    ) -> Self {
        Self {
            local,
            far,
            session,
        }
    }
}

/// The mirror that was meant.
pub(super) struct Target {
    pub(super) around: Around,
    meant: Meant,
}

enum Meant {
    Ends(Ends),
    Session(Box<SessionMirror>),
}

impl Target {
    /// Finds it.
    pub(super) fn of(args: &EndArgs, ctx: &Context) -> Result<Self, Failure> {
        let around = ctx.around()?;
        let meant = match args {
            EndArgs {
                session: Some(id), ..
            } => {
                let session = lookup::find(id, &around.paths)?;
                Meant::Session(Box::new(SessionMirror::of(&session, &around.paths)?))
            }
            EndArgs {
                local: Some(local),
                far: Some(far),
                session: None,
            } => Meant::Ends(Ends::of(local, far, &around, ctx.config()?)?),
            EndArgs { .. } => {
                return Err(Failure::usage("no mirror is named")
                    .hint("give LOCAL HOST:PATH, or --session ID"));
            }
        };
        Ok(Self { around, meant })
    }

    /// The same, for a command that changes an end: not beside a session that lives in it.
    pub(super) fn to_change(args: &EndArgs, ctx: &Context) -> Result<Self, Failure> {
        let target = Self::of(args, ctx)?;
        if let Meant::Ends(ends) = &target.meant {
            let paths = &target.around.paths;
            alone::refuse_beside_another(ends.local(), None, paths)?;
            if let Far::Here(path) = ends.far() {
                alone::refuse_beside_another(path, None, paths)?;
            }
        }
        Ok(target)
    }

    /// Both ends.
    pub(super) const fn ends(&self) -> &Ends {
        match &self.meant {
            Meant::Ends(ends) => ends,
            Meant::Session(mirror) => mirror.ends(),
        }
    }

    /// How a command line names it again.
    pub(super) fn words(&self) -> String {
        match &self.meant {
            Meant::Ends(_) => "LOCAL HOST:PATH".to_owned(),
            Meant::Session(mirror) => format!("--session {}", mirror.session()),
        }
    }

    /// Refuses two ends that were never mirrored, for commands that would find nothing.
    pub(super) fn must_be_known(&self) -> Result<(), Failure> {
        self.ends().must_be_known(&self.around)
    }

    /// Opens what is kept of both here, without the other end.
    pub(super) fn pair_of(&self, local: &Local) -> Result<Pair, Failure> {
        self.ends().pair_of(local, &self.around)
    }

    /// Opens both ends.
    pub(super) fn open(&self, local: &Local, flags: &[String]) -> Result<Opened, Failure> {
        match &self.meant {
            Meant::Ends(ends) => {
                let excludes = Frozen {
                    flags: flags.to_vec(),
                    ..Frozen::default()
                };
                ends.open(local, excludes, &self.around, Stop::default())
            }
            Meant::Session(_) if !flags.is_empty() => Err(Failure::usage(
                "--exclude has no effect on a session's workspace",
            )
            .hint("its excludes were fixed by 'session start --exclude'")),
            Meant::Session(mirror) => mirror.open(local, &self.around, Stop::default()),
        }
    }

    /// Writes down in a session what was pushed.
    pub(super) fn pushed(&mut self, pushed: &Pushed, pair: &Pair) -> Result<(), Failure> {
        match &mut self.meant {
            Meant::Ends(_) => Ok(()),
            Meant::Session(mirror) => mirror.pushed(pushed, pair, &self.around),
        }
    }

    /// Writes down in a session what was pulled.
    pub(super) fn pulled(&mut self, pulled: &Pulled) -> Result<(), Failure> {
        match &mut self.meant {
            Meant::Ends(_) => Ok(()),
            Meant::Session(mirror) => mirror.pulled(pulled, &self.around),
        }
    }
}
