//! Reads any bytes as an ARFF file, and bytes after the first zero byte as an XML file with the names of
//! labels. Errors must name a line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use manylabel_base::{Error, Watch};
use manylabel_datasets::{ArffOptions, Cells, Missing, read_arff};
use texts::file;

fuzz_target!(|text: &[u8]| {
    let mut parts = text.splitn(2, |&byte| byte == 0);
    let path = file("arff", parts.next().unwrap_or_default());
    let xml = parts.next().map(|xml| file("xml", xml));
    let options = ArffOptions {
        xml: xml.as_deref(),
        missing: Missing::Unknown,
        ..ArffOptions::default()
    };
    match read_arff::<f32>(&path, &options, &Watch::new()) {
        Ok(data) => {
            let n = data.y.n_rows();
            assert_eq!(data.unknown.n_rows(), n);
            match data.x {
                Cells::Dense(values) => assert_eq!(values.len(), n * data.feature_names.len()),
                Cells::Sparse(rows) => assert_eq!(rows.n_rows(), n),
            }
        }
        Err(Error::Parse { .. }) => {}
        Err(error) => panic!("{error}"),
    }
});
