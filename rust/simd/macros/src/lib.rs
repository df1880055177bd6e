//! The attribute macro `wide`, re-exported by `manylabel_simd`.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// The instruction sets that a function is compiled for, in addition to the baseline of the target: on
/// x86-64, AVX-512 (vectors of 512 bits) and AVX2 (256 bits), both with fused multiply-add. The version is
/// chosen at run time, the first that the machine supports.
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
