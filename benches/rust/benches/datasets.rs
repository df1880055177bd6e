//! Measures reading of files in the format of the Extreme Classification Repository, plain and gzip, on
//! one thread.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use manylabel_base::Watch;
use manylabel_benches::{Text, on_one_thread};
use manylabel_datasets::{XcFile, write_xc};
use std::{env, fs, process};

fn read(criterion: &mut Criterion) {
    let text = Text::new(5_000, 20_000, 80, 1_000);
    let (x, y) = text.examples(0);
    let (y, watch) = (y.owned(), Watch::new());
    let mut group = criterion.benchmark_group("read_xc");
    let mut n_bytes = 0;
    for (form, ending) in [("plain", "txt"), ("gzip", "txt.gz")] {
        let path = env::temp_dir().join(format!("manylabel-bench-{}.{ending}", process::id()));
        write_xc(&path, x.view(), &y, &watch).expect("room for a few megabytes");
        if form == "plain" {
            n_bytes = fs::metadata(&path).expect("just written").len();
        }
        // Throughput counts bytes of text, also for the compressed file.
        group.throughput(Throughput::BytesDecimal(n_bytes));
        group.bench_function(BenchmarkId::new(form, text), |b| {
            b.iter_batched(
                || XcFile::open(&path, &watch).expect("just written"),
                XcFile::read::<i32, f32>,
                BatchSize::PerIteration,
            );
        });
        fs::remove_file(&path).expect("just written");
    }
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = read
}
criterion_main!(benches);
