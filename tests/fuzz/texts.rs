//! Bytes as files, for readers that want a path.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// A file of this process that holds `text`; `name` tells several of them apart.
pub fn file(name: &str, text: &[u8]) -> PathBuf {
    // Memory instead of a disk, where there is such a folder.
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
