//! Computes the checksum of model files, which is CRC-32 as in zip and zlib. The checksum is fast enough to
//! be checked whenever a file is loaded.

use crate::error::to_py;
use crate::run::run;
use crc32fast::Hasher;
use manylabel_base::{Error, Watch, parts};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use rayon::prelude::*;

/// Number of bytes that are hashed as one unit of work. Hashing these bytes takes about a millisecond if they
/// are in memory.
const CHUNK: usize = 4 << 20;

/// The number of threads. Two threads nearly use the full bandwidth of ordinary memory, so more threads
/// would not help.
const N_THREADS: usize = 2;

/// Computes the CRC-32 of `data`. `start` is the CRC-32 of the bytes before `data`.
///
/// The result equals `zlib.crc32(data, start)`. More than 4 MiB are hashed on two threads while the GIL is
/// released. The result does not depend on how the data are divided into chunks, because the CRCs of adjacent
/// chunks combine exactly.
///
/// # Errors
///
/// Raises `ValueError` if `data` is not contiguous.
#[pyfunction]
#[pyo3(signature = (data, start = 0))]
pub(crate) fn crc32(py: Python<'_>, data: PyReadonlyArray1<'_, u8>, start: u32) -> PyResult<u32> {
    let data = data.as_slice().map_err(|_| {
        to_py(Error::Param {
            name: "data",
            expected: "contiguous",
            got: "a strided array".into(),
        })
    })?;
    let before = Hasher::new_with_initial(start);
    if data.len() <= CHUNK {
        return Ok(join(before, [hash(data)]));
    }
    run(py, N_THREADS, None, |watch: &Watch| {
        let hashes = data.par_chunks(CHUNK).map(|chunk| {
            watch.step(chunk.len())?;
            Ok(hash(chunk))
        });
        Ok(join(before, parts(hashes)?))
    })
}

/// Computes the CRC-32 of one chunk.
fn hash(bytes: &[u8]) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher
}

/// Combines the CRC-32s of consecutive chunks.
fn join(mut first: Hasher, rest: impl IntoIterator<Item = Hasher>) -> u32 {
    for next in rest {
        first.combine(&next);
    }
    first.finalize()
}
