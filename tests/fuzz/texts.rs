//! Writes bytes to files, for readers that take a path.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// Writes `text` to a file of this process. `name` distinguishes files of the same process.
pub fn file(name: &str, text: &[u8]) -> PathBuf {
    // Memory is faster than a disk, so use this folder if it exists.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        memory.into()
    } else {
        env::temp_dir()
    };
    let path = folder.join(format!("manylabel-fuzz-{}-{name}", process::id()));
    fs::write(&path, text).expect("room for a small file");
    path
}
