//! From arrays to text.

use crate::number::{Real, push_decimal};
use flate2::Compression;
use flate2::write::GzEncoder;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of whole lines collected before they are written.
const CHUNK: usize = 1 << 16;

/// Bytes of text collected before they are written although the line goes on.
const LARGEST_CHUNK: usize = 1 << 20;

/// No label and no pair needs more bytes: a separator, 20 digits, a colon and a decimal of 24.
const LONGEST_PIECE: usize = 64;

/// Writes a data set; gzip if the name of `path` ends in `.gz`. `watch` counts examples.
///
/// Values are the shortest decimals that read back to the same `V`, whole numbers below 10¹⁶ are
/// integers, stored zeros of `x` are left out; every stored entry of `y` is a label. The text goes to a new file beside `path`,
/// which takes its name once it is complete: whatever happens, `path` is either the old file or
/// the new one. If `path` exists and is no file (a pipe, `/dev/stdout`), it is written directly.
///
/// # Errors
///
/// [`Error::Shape`] if the numbers of rows differ, [`Error::Io`], [`Error::Stopped`], [`Error::TooLarge`],
/// and [`Error::Param`] if a value is not finite.
pub fn write_xc<I: Index, V: Real>(
    path: &Path,
    x: CsrView<'_, I, V>,
    y: &CsrOwned,
    watch: &Watch,
) -> Result<(), Error> {
    same("rows of Y", x.n_rows(), y.n_rows())?;
    let refused = |source| Error::Io {
        path: path.into(),
        source,
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = File::options().write(true).open(path).map_err(refused)?;
        return write_to(file, path, x, y, watch).map(drop);
    }
    // A link keeps pointing where it does; the file behind it is the one to replace.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let (unfinished, file) = Unfinished::beside(&target).map_err(refused)?;
    if let Ok(old) = fs::metadata(&target) {
        file.set_permissions(old.permissions()).map_err(refused)?;
    }
    let file = write_to(file, path, x, y, watch)?;
    file.sync_all().map_err(refused)?;
    unfinished.rename(&target).map_err(refused)
}

fn write_to<I: Index, V: Real>(
    file: File,
    path: &Path,
    x: CsrView<'_, I, V>,
    y: &CsrOwned,
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

fn write_rows<I: Index, V: Real>(
    out: &mut impl Write,
    path: &Path,
    x: CsrView<'_, I, V>,
    y: &CsrOwned,
    watch: &Watch,
) -> Result<(), Error> {
    let mut lines = Lines {
        text: reserved("a line of text", LARGEST_CHUNK)?,
        out,
        path,
        watch,
    };
    // Writing to a vector cannot fail, here and below.
    let _ = writeln!(lines.text, "{} {} {}", x.n_rows(), x.n_cols(), y.n_cols);
    let mut n_written = 0;
    for row in 0..x.n_rows() {
        lines.push_example(y.row(row).0, x.row(row))?;
        if lines.text.len() >= CHUNK || row + 1 == x.n_rows() {
            lines.pass_on()?;
            watch.step(row + 1 - n_written)?;
            n_written = row + 1;
        }
    }
    lines.pass_on()
}

/// Text on its way into a file. Its memory never grows.
struct Lines<'a, W> {
    text: Vec<u8>,
    out: &'a mut W,
    path: &'a Path,
    watch: &'a Watch,
}

impl<W: Write> Lines<'_, W> {
    fn push_example<I: Index, V: Real>(
        &mut self,
        labels: &[u32],
        (features, values): (&[I], &[V]),
    ) -> Result<(), Error> {
        let mut separator = "";
        for label in labels {
            self.make_room()?;
            let _ = write!(self.text, "{separator}{label}");
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

    /// Makes room for a piece of a line.
    fn make_room(&mut self) -> Result<(), Error> {
        if self.text.len() + LONGEST_PIECE > LARGEST_CHUNK {
            self.pass_on()?;
            self.watch.step(0)?;
        }
        Ok(())
    }

    /// Writes what is there.
    fn pass_on(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.text).map_err(|source| Error::Io {
            path: self.path.into(),
            source,
        })?;
        self.text.clear();
        Ok(())
    }
}

/// A file that disappears unless it is renamed.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
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

    fn rename(mut self, target: &Path) -> io::Result<()> {
        let path = self.0.take().unwrap_or_default();
        fs::rename(&path, target).inspect_err(|_| self.0 = Some(path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The error that brought us here is the one to tell of.
            let _ = fs::remove_file(path);
        }
    }
}
