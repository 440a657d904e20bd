use crate::exit::{Exit, Failure};
use crate::proc::{Ancestor, fingerprint, name_of, user_of, word_after};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, getuid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process for whose life a lock is kept. The kernel's descriptor of it never refers to another process that gets its number.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(super) pid: u32,
    pub(super) in_proc: i32,
    /// See [`fingerprint`]: another container has another process with the same number.
    fingerprint: Option<String>,
    /// As `ps` shows it, without its arguments.
    pub(super) command: String,
    descriptor: OwnedFd,
}

impl Watched {
    /// The running process with this number, if it belongs to this user.
    pub(super) fn open(pid: u32) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::new(Exit::Usage, format!("--while-pid {pid}: {why}"));
        let number =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| refused("no process has this number"))?;
        let descriptor = descriptor_of(number).map_err(|error| match error {
            Errno::SRCH => refused("there is no process with this number, or it has ended"),
            Errno::NOTSUP => {
                let why = "--while-pid needs Linux, which can tell the end of a process exactly";
                Failure::new(Exit::Usage, format!("{why}; use `fencelock run KEY -- COMMAND`"))
            }
            Errno::INVAL | Errno::NOENT => refused("this is a thread; name its process"),
            error => Failure::system(&format!("watch process {pid}"), error),
        })?;
        let watched = Self::of_descriptor(pid, descriptor);
        let owner = user_of(watched.in_proc);
        // What was read is about this process only if it still has the number.
        if watched.has_ended() {
            return Err(refused("this process has ended"));
        }
        let owner = owner.ok_or_else(|| refused("the user of this process cannot be read from /proc"))?;
        if !geteuid().is_root() && owner != getuid().as_raw() && owner != geteuid().as_raw() {
            return Err(refused(&format!("this process belongs to another user ({owner})")));
        }
        Ok(watched)
    }

    /// The process of a descriptor that was opened by [`Self::open`].
    pub(super) fn of_descriptor(pid: u32, descriptor: OwnedFd) -> Self {
        let in_proc = number_in_proc(&descriptor, pid);
        let fingerprint = i32::try_from(pid).ok().and_then(|pid| fingerprint(pid, in_proc));
        // Control characters are not valid in a label.
        Self { pid, in_proc, fingerprint, command: name_of(in_proc).replace(char::is_control, "?"), descriptor }
    }

    /// # Errors
    /// The system hides what tells it apart from other processes.
    pub(super) fn fingerprint(&self) -> Result<String, Failure> {
        let hidden =
            || Failure::system(&format!("read /proc/{}/stat", self.in_proc), "it has ended, or the system hides it");
        self.fingerprint.clone().ok_or_else(hidden)
    }

    /// As one of the processes that a command runs under.
    pub(super) fn as_ancestor(&self) -> Result<Ancestor, Failure> {
        Ok(Ancestor { pid: self.in_proc, fingerprint: self.fingerprint()? })
    }

    /// Whether it leads a process group or a session, whose members the kernel can tell after its end.
    pub(super) fn is_leader(&self) -> bool {
        let number = i32::try_from(self.pid).ok().map(nix::unistd::Pid::from_raw);
        // Not with rustix: a group that began outside a namespace has the number zero in it.
        [nix::unistd::getpgid(number), nix::unistd::getsid(number)].iter().any(|led| led.ok() == number)
    }

    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    /// Sends a signal to it, and to no other process.
    #[cfg(target_os = "linux")]
    pub(super) fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.descriptor, signal)?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn signal(&self, _: rustix::process::Signal) -> io::Result<()> {
        Err(Errno::NOTSUP.into())
    }

    pub(super) fn has_ended(&self) -> bool {
        has_ended(self.as_fd())
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The end of a process.
#[derive(Debug)]
pub(crate) struct End(AsyncFd<OwnedFd>);

impl End {
    /// Of the kernel's descriptor of the process.
    #[allow(
        deprecated,
        reason = "the successor is newer than the oldest tokio that is supported; an OwnedFd is always valid"
    )]
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        Ok(Self(AsyncFd::with_interest(descriptor, Interest::READABLE)?))
    }

    /// Waits for it. Cancel safe.
    pub(crate) async fn wait(&self) {
        while !has_ended(self.0.as_fd()) {
            match self.0.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // Only when the runtime ends.
                Err(_) => return,
            }
        }
    }
}

/// The kernel's descriptor of the process that has this number now.
#[cfg(target_os = "linux")]
pub(crate) fn descriptor_of(process: Pid) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn descriptor_of(_: Pid) -> rustix::io::Result<OwnedFd> {
    Err(Errno::NOTSUP)
}

/// A descriptor of a process is readable once the process has ended, also before its parent has waited for it.
fn has_ended(descriptor: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Its number in `/proc`, which may show another namespace of numbers.
fn number_in_proc(descriptor: &OwnedFd, pid: u32) -> i32 {
    let number = word_after("Pid:", format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
    number.and_then(|number| number.parse().ok()).or_else(|| pid.try_into().ok()).unwrap_or_default()
}
