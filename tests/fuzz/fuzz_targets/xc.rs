//! Reads any bytes as a file in the Extreme Classification format. Errors must name a line. Then reads them
//! with wider types, which must give the same rows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use manylabel_base::{Error, Watch};
use manylabel_datasets::XcFile;
use texts::file;

fuzz_target!(|text: &[u8]| {
    let path = file("xc", text);
    let watch = Watch::new();
    let single = XcFile::open(&path, &watch).and_then(XcFile::read::<i32, f32>);
    let double = XcFile::open(&path, &watch).and_then(XcFile::read::<i64, f64>);
    match (single, double) {
        (Ok(single), Ok(double)) => {
            assert_eq!(single.shape, double.shape);
            assert_eq!(single.y.ends, double.y.ends);
            assert_eq!(single.x.n_rows(), single.shape.0);
        }
        // Numbers may be beyond 32 bits.
        (Err(Error::TooLarge { .. } | Error::Parse { .. }), Ok(_)) => {}
        (Err(_), Err(Error::Parse { .. })) => {}
        (single, double) => panic!("{single:?} and {double:?}"),
    }
});
