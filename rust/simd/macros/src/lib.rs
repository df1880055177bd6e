//! The attribute `wide`; see `manylabel_simd`, which hands it on.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// The instruction sets that loops are compiled for, beside those that every machine of its kind
/// has: vectors of 512 bits where there are all the instructions that numeric loops use, of 256 bits
/// where there are fused products. Which one runs is decided when it runs.
const WIDE: &str = r#"#[multiversion::multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+fma",
    "x86_64+avx2+fma",
))]"#;

#[expect(clippy::disallowed_methods, reason = "this runs in the compiler")]
/// Compiles a function for several instruction sets; see `manylabel_simd`.
#[proc_macro_attribute]
pub fn wide(_: TokenStream, function: TokenStream) -> TokenStream {
    let attribute: TokenStream = WIDE.parse().unwrap_or_default();
    attribute.into_iter().chain(function).collect()
}
