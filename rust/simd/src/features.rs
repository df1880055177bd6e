//! Returns which registers and instructions the processor has.

/// Returns true if the processor has registers of 512 bits. A [`wide`](crate::wide) function then has 32 of
/// these registers. With AVX2, it has 16 registers of 256 bits.
pub fn has_512_bits() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Returns true if the processor has an instruction for fused multiply-add. Without this instruction,
/// `mul_add` is a slow function call.
pub fn has_fused_multiply_add() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}
