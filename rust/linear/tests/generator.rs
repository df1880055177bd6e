//! Checks the numbers that the random number generator draws. The library promises that results with
//! the same seed are exactly equal across versions. If these numbers change, the results of users
//! change.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use fastrand::Rng;

#[test]
#[expect(clippy::unreadable_literal, reason = "bits, not quantities")]
fn the_generator_draws_what_it_drew() {
    let mut rng = Rng::with_seed(7);
    assert_eq!(
        [rng.u64(..), rng.u64(..), rng.u64(..)],
        [
            14266376187910451857,
            4104141878723513376,
            13250119348504322419
        ]
    );
    assert_eq!([rng.usize(..1000), rng.usize(..1000)], [481, 116]);
    assert_eq!(
        [rng.f64().to_bits(), rng.f64().to_bits()],
        [4595132114270973939, 4605305584378471979]
    );
    assert_eq!(
        [rng.f32().to_bits(), rng.f32().to_bits()],
        [1035832150, 1041108061]
    );
    let mut order: Vec<u32> = (0..10).collect();
    rng.shuffle(&mut order);
    assert_eq!(order, [3, 2, 0, 7, 9, 5, 1, 8, 6, 4]);
    let drawn: Vec<u32> = rng.choose_multiple(0..1000, 4);
    assert_eq!(drawn, [833, 801, 621, 171]);
}
