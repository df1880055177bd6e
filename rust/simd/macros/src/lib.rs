//! Defines the attribute macro `wide`, which `manylabel_simd` re-exports.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// The instruction sets for which a function is compiled, besides the baseline of the target.
///
/// On x86-64 they are AVX-512 (vectors of 512 bits) and AVX2 (vectors of 256 bits), each with fused
/// multiply-add. At run time, the first version in this order that the machine supports is used.
const WIDE: &str = r#"#[multiversion::multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+fma",
    "x86_64+avx2+fma",
))]"#;

#[expect(clippy::disallowed_methods, reason = "this runs in the compiler")]
/// Compiles a function for several instruction sets. The documentation of `manylabel_simd` explains how
/// to use it.
#[proc_macro_attribute]
pub fn wide(_: TokenStream, function: TokenStream) -> TokenStream {
    let attribute: TokenStream = WIDE.parse().unwrap_or_default();
    attribute.into_iter().chain(function).collect()
}
