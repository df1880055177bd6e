//! Writes CSR matrices in the text format of the Extreme Classification Repository.
//!
//! Lines are collected in a buffer of fixed size and written in chunks. The text goes to a new hidden
//! file in the same directory. When this file is complete and has reached the disk, it replaces the
//! target. If an error or a stop occurs, the target stays unchanged and the new file is removed.

use crate::number::{Real, push_decimal};
use flate2::Compression;
use flate2::write::GzEncoder;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, reserved};
use manylabel_sparse::{CsrView, Index, Labels};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Number of bytes of whole lines that are collected before they are written.
const CHUNK: usize = 1 << 16;

/// The size of the buffer. If it is full, text is written in the middle of a line.
const LARGEST_CHUNK: usize = 1 << 20;

/// An upper bound on the number of bytes of one label, or of one feature with its value. A feature with its
/// value consists of a separator, a number of up to 20 digits, a colon, and a decimal of up to 24 bytes.
const LONGEST_PIECE: usize = 64;

/// Writes a data set in the format of the Extreme Classification Repository. If the name of `path` ends in
/// `.gz`, the file is compressed. `watch` counts examples.
///
/// Each value is written as the shortest decimal that reads back as the same `V`. Whole numbers below 10¹⁶
/// are written as integers. Explicit zeros of `x` are left out. The labels of an example are the entries of
/// its row in [`Labels::ones`]. They are followed by its unknown labels, each with a question mark, as in
/// `7?`.
///
/// The text goes to a new file in the directory of `path`. When the new file is complete, it is renamed to
/// `path`. So `path` never names an incomplete file. Symbolic links are followed, and the permissions of an
/// old file are kept. If `path` exists and is not a regular file (for example a pipe or `/dev/stdout`), the
/// text is written to it directly.
///
/// # Errors
///
/// Returns [`Error::Shape`] if `x` and `y` have different numbers of rows. Returns [`Error::Param`] if a
/// value is not finite. Returns [`Error::Io`] if the file cannot be written. Returns [`Error::Stopped`] if
/// the caller requested a stop. Returns [`Error::TooLarge`] if memory is short.
pub fn write_xc<'a, I: Index, V: Real>(
    path: &Path,
    x: CsrView<'_, I, V>,
    y: impl Into<Labels<'a>>,
    watch: &Watch,
) -> Result<(), Error> {
    let y = y.into();
    y.check()?;
    same("rows of Y", x.n_rows(), y.ones.n_rows())?;
    let refused = |source| Error::Io {
        path: path.into(),
        source,
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = File::options().write(true).open(path).map_err(refused)?;
        return write_to(file, path, x, y, watch).map(drop);
    }
    // A symbolic link is kept, and the file to which it points is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let (unfinished, file) = Unfinished::beside(&target).map_err(refused)?;
    if let Ok(old) = fs::metadata(&target) {
        file.set_permissions(old.permissions()).map_err(refused)?;
    }
    let file = write_to(file, path, x, y, watch)?;
    file.sync_all().map_err(refused)?;
    unfinished.rename(&target).map_err(refused)
}

/// Writes the text to `file`. If the name of `path` ends in `.gz`, the text is compressed. Returns the
/// file.
///
/// # Errors
///
/// Returns the same errors as [`write_xc`].
fn write_to<I: Index, V: Real>(
    file: File,
    path: &Path,
    x: CsrView<'_, I, V>,
    y: Labels<'_>,
    watch: &Watch,
) -> Result<File, Error> {
    let refused = |source| Error::Io {
        path: path.into(),
        source,
    };
    if path.extension().is_some_and(|suffix| suffix == "gz") {
        let mut packed = GzEncoder::new(file, Compression::default());
        write_rows(&mut packed, path, x, y, watch)?;
        packed.finish().map_err(refused)
    } else {
        let mut file = file;
        write_rows(&mut file, path, x, y, watch)?;
        Ok(file)
    }
}

/// Writes the header and all examples to `out`.
///
/// # Errors
///
/// Returns the same errors as [`write_xc`].
fn write_rows<I: Index, V: Real>(
    out: &mut impl Write,
    path: &Path,
    x: CsrView<'_, I, V>,
    y: Labels<'_>,
    watch: &Watch,
) -> Result<(), Error> {
    let mut lines = Lines {
        text: reserved("a line of text", LARGEST_CHUNK)?,
        out,
        path,
        watch,
    };
    // Writing to a vector cannot fail, here and below.
    let _ = writeln!(
        lines.text,
        "{} {} {}",
        x.n_rows(),
        x.n_cols(),
        y.ones.n_cols
    );
    let mut n_written = 0;
    for row in 0..x.n_rows() {
        lines.push_example((y.ones.row(row).0, y.unknown_of(row)), x.row(row))?;
        if lines.text.len() >= CHUNK || row + 1 == x.n_rows() {
            lines.pass_on()?;
            watch.step(row + 1 - n_written)?;
            n_written = row + 1;
        }
    }
    lines.pass_on()
}

/// Collects text in a buffer before the text is written to a file. The buffer never grows.
struct Lines<'a, W> {
    /// The buffer.
    text: Vec<u8>,
    /// The destination of the text.
    out: &'a mut W,
    /// The path, for error messages.
    path: &'a Path,
    /// The watch, which is checked for a stop request of the caller at intervals within very long lines.
    watch: &'a Watch,
}

impl<W: Write> Lines<'_, W> {
    /// Adds the line of one example.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is not finite. Returns [`Error::Io`] if the file cannot be
    /// written. Returns [`Error::Stopped`] if the caller requested a stop.
    fn push_example<I: Index, V: Real>(
        &mut self,
        (labels, unknown): (&[u32], &[u32]),
        (features, values): (&[I], &[V]),
    ) -> Result<(), Error> {
        let mut separator = "";
        for label in labels {
            self.make_room()?;
            let _ = write!(self.text, "{separator}{label}");
            separator = ",";
        }
        for label in unknown {
            self.make_room()?;
            let _ = write!(self.text, "{separator}{label}?");
            separator = ",";
        }
        self.make_room()?;
        self.text.push(b' ');
        separator = "";
        for (feature, &value) in features.iter().zip(values) {
            if !value.f64().is_finite() {
                return Err(Error::Param {
                    name: "X",
                    expected: "finite",
                    got: value.f64().to_string(),
                });
            }
            if value != V::default() {
                self.make_room()?;
                let _ = write!(self.text, "{separator}{feature}:");
                push_decimal(value, &mut self.text);
                separator = " ";
            }
        }
        self.make_room()?;
        self.text.push(b'\n');
        Ok(())
    }

    /// Makes sure that [`LONGEST_PIECE`] bytes are free in the buffer. If necessary, the buffer is
    /// written first.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the file cannot be written. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn make_room(&mut self) -> Result<(), Error> {
        if self.text.len() + LONGEST_PIECE > LARGEST_CHUNK {
            self.pass_on()?;
            self.watch.step(0)?;
        }
        Ok(())
    }

    /// Writes the buffer to the file and empties the buffer.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the file cannot be written.
    fn pass_on(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.text).map_err(|source| Error::Io {
            path: self.path.into(),
            source,
        })?;
        self.text.clear();
        Ok(())
    }
}

/// The path of a new file. On drop, the file is removed unless it has been renamed.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    /// Creates a hidden file in the directory of `target`. Its name contains the process id.
    ///
    /// # Errors
    ///
    /// Returns errors of the operating system.
    fn beside(target: &Path) -> io::Result<(Self, File)> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        for attempt in 0u32.. {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{attempt}.part", std::process::id()));
            let path = target.with_file_name(hidden);
            match File::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|file| (Self(Some(path)), file)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Renames the file to `target`. An existing file of this name is replaced.
    ///
    /// # Errors
    ///
    /// Returns errors of the operating system. After an error, the new file is removed.
    fn rename(mut self, target: &Path) -> io::Result<()> {
        let path = self.0.take().unwrap_or_default();
        fs::rename(&path, target).inspect_err(|_| self.0 = Some(path))
    }
}

impl Drop for Unfinished {
    /// Removes the file unless it has been renamed.
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The error that caused the removal is reported. A second error would hide it.
            let _ = fs::remove_file(path);
        }
    }
}
