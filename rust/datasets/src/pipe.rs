//! Opens files that may have no text to read yet: pipes, terminals and devices.
//!
//! A blocking read from a silent pipe cannot be interrupted. Opening a named pipe that has no writer cannot
//! be interrupted either. So a file that is not a regular file is opened in non-blocking mode and polled at
//! intervals. Between two polls, the code checks whether the caller has requested a stop. Regular files are
//! read as usual.
//!
//! Non-blocking mode is used only on Unix. On other systems, all files are read as usual.

use manylabel_base::Watch;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file for reading. Also returns the file's metadata from the system.
///
/// # Errors
///
/// Returns errors of the operating system. If the caller requested a stop, the error contains a
/// [`manylabel_base::Error`].
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
    // Reading a named pipe without writers reports the end of the file. On Linux, polling waits for the first
    // writer. On other systems, the end may be reported before the first writer opens the pipe.
    let expects_writer = about.file_type().is_fifo() && !cfg!(target_os = "linux");
    let patient = Patient {
        file,
        watch,
        expects_writer,
    };
    Ok((Box::new(patient), about))
}

/// Opens a file for reading. Also returns the file's metadata from the system.
///
/// # Errors
///
/// Returns errors of the operating system.
#[cfg(not(unix))]
pub(crate) fn open<'w>(
    path: &Path,
    _: &'w Watch,
) -> io::Result<(Box<dyn Read + Send + 'w>, Metadata)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    Ok((Box::new(file), about))
}

/// A file in non-blocking mode that is polled at intervals.
#[cfg(unix)]
struct Patient<'w> {
    /// The file.
    file: File,
    /// The watch, which is checked for a stop request of the caller between two polls.
    watch: &'w Watch,
    /// True until text has been read. While this value is true, an end of the file may mean that the pipe has
    /// no writer yet.
    expects_writer: bool,
}

#[cfg(unix)]
impl Read for Patient<'_> {
    /// Waits until there is text, the file ends or the caller requests a stop. Then reads text.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::io::Errno;

        /// Time between two checks for a stop request, 50 ms. Ctrl-C must take effect within a second.
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
                    // Another process may have read the text first.
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

/// Waits for one interval. The wait is needed because [`poll`](rustix::event::poll) may return at once
/// although there is nothing to read.
#[cfg(unix)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}
