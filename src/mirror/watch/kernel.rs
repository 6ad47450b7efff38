//! What the kernel is asked to tell of, and what it tells.

#[cfg(target_os = "linux")]
pub(super) use self::linux::Kernel;
#[cfg(not(target_os = "linux"))]
pub(super) use self::other::Kernel;

/// Why edits are looked for instead of heard of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Deaf {
    /// The tree has more directories than may be watched.
    #[error(
        "the limit of watched directories is reached (fs.inotify.max_user_watches{}); raise it with \
         'sysctl fs.inotify.max_user_watches=N' as root, or exclude directories that need no push",
        of(*.0)
    )]
    Watches(Option<u64>),
    /// Too many programs watch.
    #[error(
        "the limit of programs that watch is reached (fs.inotify.max_user_instances{}); end one, or \
         raise it with 'sysctl fs.inotify.max_user_instances=N' as root",
        of(*.0)
    )]
    Instances(Option<u64>),
    /// Something else.
    #[error("the system does not tell of edits: {0}")]
    System(String),
}

fn of(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" is {limit}"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;

    use notify::event::{CreateKind, ModifyKind, RemoveKind, RenameMode};
    use notify::{
        Config, ErrorKind, Event, EventHandler, EventKind, INotifyWatcher, RecursiveMode, Watcher,
    };
    use rustix::io::Errno;

    use super::Deaf;
    use crate::mirror::watch::alias;
    use crate::mirror::watch::wake::{Wake, What};

    /// Watches, and the number of the next one.
    pub(in crate::mirror::watch) struct Kernel {
        watcher: INotifyWatcher,
        next: u32,
    }

    impl Kernel {
        pub(in crate::mirror::watch) fn new(wake: &Arc<Wake>) -> Result<Self, Deaf> {
            Ok(Self {
                watcher: watcher(wake)?,
                next: 0,
            })
        }

        /// Watches nothing any more, and may watch anew. Numbers go on: what is told late, of a
        /// watch that is gone, is of a number that nobody knows.
        pub(in crate::mirror::watch) fn anew(&mut self, wake: &Arc<Wake>) -> Result<(), Deaf> {
            self.watcher = watcher(wake)?;
            Ok(())
        }

        /// Watches a directory, and gives the number that its events will have.
        pub(in crate::mirror::watch) fn watch(
            &mut self,
            opened: BorrowedFd<'_>,
        ) -> Result<u32, Deaf> {
            let number = self.next;
            self.next = (number + 1) % alias::NUMBERS;
            let path = alias::alias(number, opened);
            match self.watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => Ok(number),
                Err(error) => Err(deaf(&error)),
            }
        }
    }

    fn watcher(wake: &Arc<Wake>) -> Result<INotifyWatcher, Deaf> {
        let config = Config::default().with_follow_symlinks(false);
        INotifyWatcher::new(Ear(Arc::clone(wake)), config).map_err(|error| deaf(&error))
    }

    fn deaf(error: &notify::Error) -> Deaf {
        match &error.kind {
            ErrorKind::MaxFilesWatch => Deaf::Watches(limit("max_user_watches")),
            ErrorKind::Io(why) if why.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                Deaf::Instances(limit("max_user_instances"))
            }
            // Its text would name our own path to the directory.
            ErrorKind::Io(why) => Deaf::System(why.to_string()),
            ErrorKind::Generic(_)
            | ErrorKind::PathNotFound
            | ErrorKind::WatchNotFound
            | ErrorKind::InvalidConfig(_) => Deaf::System(error.to_string()),
        }
    }

    fn limit(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?;
        text.trim().parse().ok()
    }

    /// Runs on the thread of `notify`; it must be done soon, or the kernel's queue runs over.
    struct Ear(Arc<Wake>);

    impl EventHandler for Ear {
        fn handle_event(&mut self, event: notify::Result<Event>) {
            // Before anything is made of its paths: an overflow has none.
            let event = match event {
                Ok(event) if !event.need_rescan() => event,
                Ok(_) | Err(_) => return self.0.tell_lost(),
            };
            let Some(what) = what(event.kind) else {
                return;
            };
            for path in &event.paths {
                if let Some((number, name)) = alias::read(path) {
                    self.0.tell(number, name, what);
                }
            }
        }
    }

    /// What happened; nothing when nothing was edited: our own reading makes events too.
    fn what(kind: EventKind) -> Option<What> {
        let mut what = What::default();
        match kind {
            // Both names were told of one by one.
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
                return None;
            }
            EventKind::Create(kind) => {
                what.made = true;
                what.directory = kind == CreateKind::Folder;
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => what.made = true,
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) => what.left = true,
            EventKind::Remove(kind) => what.directory = kind == RemoveKind::Folder,
            EventKind::Modify(_) | EventKind::Any | EventKind::Other => {}
        }
        Some(what)
    }

    #[cfg(test)]
    mod tests {
        use std::time::{Duration, Instant};

        use notify::event::Flag;

        use super::*;
        use crate::mirror::watch::wake::Next;

        /// The kernel's queue ran over: that has no path, and is told as everything.
        #[test]
        fn m43_an_overflow_without_a_path_is_heard() {
            let wake = Arc::new(Wake::default());
            let mut ear = Ear(Arc::clone(&wake));
            ear.handle_event(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)));
            let soon = Instant::now() + Duration::from_mins(1);
            assert!(matches!(wake.next(Some(soon)), Next::Told(told) if told.lost));
        }

        /// Reading a tree is no edit.
        #[test]
        fn our_own_reading_is_not_heard() {
            use notify::event::{AccessKind, AccessMode};
            for kind in [
                AccessKind::Open(AccessMode::Any),
                AccessKind::Close(AccessMode::Read),
                AccessKind::Close(AccessMode::Write),
            ] {
                assert_eq!(what(EventKind::Access(kind)), None);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;

    use super::Deaf;
    use crate::mirror::watch::wake::Wake;

    /// Nothing is told here: only Linux watches what is open, whatever its name leads to.
    pub(in crate::mirror::watch) struct Kernel;

    impl Kernel {
        pub(in crate::mirror::watch) fn new(_wake: &Arc<Wake>) -> Result<Self, Deaf> {
            Err(Deaf::System("it is not Linux".to_owned()))
        }

        pub(in crate::mirror::watch) fn anew(&mut self, wake: &Arc<Wake>) -> Result<(), Deaf> {
            Self::new(wake).map(|_| ())
        }

        pub(in crate::mirror::watch) fn watch(
            &mut self,
            _opened: BorrowedFd<'_>,
        ) -> Result<u32, Deaf> {
            Err(Deaf::System("it is not Linux".to_owned()))
        }
    }
}
