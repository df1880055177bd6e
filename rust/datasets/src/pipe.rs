//! Files that may keep a reader waiting: pipes, terminals, devices.
//!
//! A blocking read of a silent pipe cannot be called off, nor can opening a named pipe that nobody writes
//! to. So what is no regular file is opened without blocking and asked for text at intervals, between
//! which the watch is looked at.

use manylabel_base::Watch;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file for reading. An error that holds a [`manylabel_base::Error`] is the watch's.
#[cfg(unix)]
pub(crate) fn open<'w>(
    path: &Path,
    watch: &'w Watch,
) -> io::Result<(Box<dyn Read + Send + 'w>, Metadata)> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

    let about = fs::metadata(path)?;
    if about.is_file() || about.is_dir() {
        return Ok((Box::new(File::open(path)?), about));
    }
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    // On Linux, a named pipe ends when its writers have left; elsewhere also before the first one came.
    let expects_writer = about.file_type().is_fifo() && !cfg!(target_os = "linux");
    let patient = Patient {
        file,
        watch,
        expects_writer,
    };
    Ok((Box::new(patient), about))
}

/// Opens a file for reading.
#[cfg(not(unix))]
pub(crate) fn open<'w>(
    path: &Path,
    _: &'w Watch,
) -> io::Result<(Box<dyn Read + Send + 'w>, Metadata)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    Ok((Box::new(file), about))
}

/// A file that is asked for text at intervals.
#[cfg(unix)]
struct Patient<'w> {
    file: File,
    watch: &'w Watch,
    /// Whether an end may mean that nobody has begun to write.
    expects_writer: bool,
}

#[cfg(unix)]
impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::io::Errno;

        /// How long to wait before the next look at the watch. Ctrl-C is promised within a second.
        const INTERVAL: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        loop {
            let mut asked = [PollFd::new(&self.file, PollFlags::IN)];
            let answered = match poll(&mut asked, Some(&INTERVAL)) {
                Err(Errno::INTR) => 0,
                answered => answered?,
            };
            if answered > 0 {
                match self.file.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Another reader was quicker.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause(),
                    Ok(0) if self.expects_writer => pause(),
                    read => {
                        self.expects_writer = false;
                        return read;
                    }
                }
            }
            self.watch.step(0).map_err(io::Error::other)?;
        }
    }
}

/// Waits where [`poll`](rustix::event::poll) returns at once though there is nothing to read.
#[cfg(unix)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}
