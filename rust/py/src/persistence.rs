//! The checksum of the model file: CRC-32 as in zip and zlib, fast enough to be computed at every load.

use crate::error::to_py;
use crate::run::run;
use crc32fast::Hasher;
use manylabel_base::{Error, Watch, parts};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use rayon::prelude::*;

/// Bytes that are hashed as one unit of work, which takes about a millisecond if they are in memory.
const CHUNK: usize = 4 << 20;

/// Two threads come close to the bandwidth of ordinary memory. More would wait for it.
const N_THREADS: usize = 2;

/// The CRC-32 of `data`, continuing from the CRC-32 `start` of what came before it.
///
/// Equals `zlib.crc32(data, start)`. More than 4 MiB are hashed on two threads with the interpreter released.
/// The result does not depend on how data are cut into chunks, since the CRCs of neighbours combine exactly.
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

/// The CRC-32 of one chunk.
fn hash(bytes: &[u8]) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher
}

/// The CRC-32 of all chunks, one after the other.
fn join(mut first: Hasher, rest: impl IntoIterator<Item = Hasher>) -> u32 {
    for next in rest {
        first.combine(&next);
    }
    first.finalize()
}
