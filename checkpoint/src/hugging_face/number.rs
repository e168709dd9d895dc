//! Numbers of the formats that weights are kept in. Rounding is to the nearest, ties to even.

use crate::Dtype;

/// Bits of the largest finite float32.
const LARGEST: u32 = 0x7f7f_ffff;

/// The bfloat16 that is nearest to a float32; a NaN stays one.
pub(super) fn to_bf16(bits: u32) -> u16 {
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        // With the bit that makes it a quiet one, so that it cannot become an infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

/// The float16 that is nearest to a float32; a NaN stays one.
pub(super) fn to_f16(bits: u32) -> u16 {
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let rounded = match magnitude {
        0x7f80_0001.. => 0x7e00 | (magnitude >> 13) & 0x3ff,
        // From 2^16 on.
        0x4780_0000.. => 0x7c00,
        // From 2^-14 on: the exponent counts from another zero. A carry goes to it, up to infinity.
        0x3880_0000.. => shift_rounding(magnitude - (112 << 23), 13),
        // From 2^-26 on: a multiple of 2^-24.
        0x3280_0000.. => {
            let significand = magnitude & 0x007f_ffff | 0x0080_0000;
            shift_rounding(significand, 126 - (magnitude >> 23))
        }
        _ => 0,
    };
    sign | rounded as u16
}

/// `value` over two to the power of `by`.
fn shift_rounding(value: u32, by: u32) -> u32 {
    let odd = (value >> by) & 1;
    (value + (1 << (by - 1)) - 1 + odd) >> by
}

/// The float32 that equals a bfloat16.
pub(super) fn from_bf16(bits: u16) -> u32 {
    u32::from(bits) << 16
}

/// The float32 that equals a float16.
pub(super) fn from_f16(bits: u16) -> u32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let value = match magnitude {
        0x7c00.. => 0x7f80_0000 | (magnitude & 0x3ff) << 13,
        0x0400.. => (magnitude << 13) + (112 << 23),
        // Multiples of 2^-24, each of which a float32 has.
        _ => (magnitude as f32 / 16_777_216.0).to_bits(),
    };
    sign | value
}

/// Turns numbers of a format into float32.
pub(super) fn widen(dtype: Dtype, from: &[u8], into: &mut [u8]) {
    let widened = match dtype {
        Dtype::BF16 => from_bf16,
        Dtype::F16 => from_f16,
        _ => return into.copy_from_slice(from),
    };
    let (pairs, _) = from.as_chunks::<2>();
    let (words, _) = into.as_chunks_mut::<4>();
    for (word, pair) in words.iter_mut().zip(pairs) {
        *word = widened(u16::from_le_bytes(*pair)).to_le_bytes();
    }
}

/// Turns float32 into numbers of a format. Returns a finite one that has become infinite, if there is one.
pub(super) fn narrow(dtype: Dtype, from: &[u8], into: &mut [u8]) -> Option<f32> {
    let (narrowed, infinite): (fn(u32) -> u16, u16) = match dtype {
        Dtype::BF16 => (to_bf16, 0x7f80),
        Dtype::F16 => (to_f16, 0x7c00),
        _ => {
            into.copy_from_slice(from);
            return None;
        }
    };
    let mut lost = None;
    let (words, _) = from.as_chunks::<4>();
    let (pairs, _) = into.as_chunks_mut::<2>();
    for (pair, word) in pairs.iter_mut().zip(words) {
        let bits = u32::from_le_bytes(*word);
        let short = narrowed(bits);
        if short & 0x7fff == infinite && bits & 0x7fff_ffff <= LARGEST {
            lost = Some(f32::from_bits(bits));
        }
        *pair = short.to_le_bytes();
    }
    lost
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn f16(value: f32) -> u16 {
        to_f16(value.to_bits())
    }

    fn bf16(value: f32) -> u16 {
        to_bf16(value.to_bits())
    }

    #[test]
    fn known_numbers_are_others() {
        let two = |exponent: i32| 2.0_f32.powi(exponent);
        for (value, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.99, 0x7bff),
            (65520.0, 0x7c00),
            (f32::INFINITY, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (0.1, 0x2e66),
            // Ties go to even.
            (1.0 + two(-11), 0x3c00),
            (1.0 + 3.0 * two(-11), 0x3c02),
            (two(-14), 0x0400),
            // Subnormal ones.
            (two(-15), 0x0200),
            (two(-24), 1),
            (two(-25), 0),
            (two(-25) * 1.001, 1),
            (3.0 * two(-25), 2),
            (two(-26), 0),
            (two(-14) - two(-26), 0x0400),
            (f32::from_bits(1), 0),
        ] {
            assert_eq!(f16(value), bits, "{value}");
        }
        for (value, bits) in [
            (1.0, 0x3f80),
            (-0.0, 0x8000),
            (1.0 + two(-8), 0x3f80),
            (1.0 + 3.0 * two(-8), 0x3f82),
            (f32::MAX, 0x7f80),
            (f32::INFINITY, 0x7f80),
            (f32::from_bits(1), 0),
            (f32::from_bits(0x0000_8000), 0),
            (f32::from_bits(0x0000_8001), 1),
        ] {
            assert_eq!(bf16(value), bits, "{value}");
        }
    }

    #[test]
    fn a_nan_becomes_a_number() {
        for bits in [0x7f80_0001, 0x7fc0_0000, 0xff80_0001, 0x7fff_ffff, 0xffff_ffff_u32] {
            assert!(f32::from_bits(from_f16(to_f16(bits))).is_nan(), "{bits:x}");
            assert!(f32::from_bits(from_bf16(to_bf16(bits))).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn every_short_number_comes_back_as_another() {
        for bits in 0..=u16::MAX {
            let back = [to_f16(from_f16(bits)), to_bf16(from_bf16(bits))];
            if f32::from_bits(from_f16(bits)).is_nan() {
                assert_eq!(back[0] | 0x200, bits | 0x200);
            } else {
                assert_eq!(back[0], bits);
            }
            if f32::from_bits(from_bf16(bits)).is_nan() {
                assert_eq!(back[1] | 0x40, bits | 0x40);
            } else {
                assert_eq!(back[1], bits);
            }
        }
    }

    #[test]
    fn a_number_that_is_lost_is_not_noticed() {
        let bytes = |values: &[f32]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let values = bytes(&[1.0, f32::INFINITY, f32::NAN, -70000.0, 3.0]);
        let mut into = [0; 10];
        assert_eq!(narrow(Dtype::F16, &values, &mut into), Some(-70000.0));
        assert_eq!(narrow(Dtype::BF16, &values, &mut into), None);
        assert_eq!(narrow(Dtype::BF16, &bytes(&[f32::MAX]), &mut into[..2]), Some(f32::MAX));
        assert_eq!(narrow(Dtype::F16, &bytes(&[f32::INFINITY]), &mut into[..2]), None);
    }

    /// Whether no neighbour of a short number is nearer to `value`, and of two that are as near it is the even one.
    fn is_nearest(value: f64, short: u16, wide: impl Fn(u16) -> u32) -> bool {
        let distance = |bits: u16| {
            let other = f64::from(f32::from_bits(wide(bits)));
            (value - other).abs()
        };
        let own = distance(short);
        let neighbours = [short.wrapping_sub(1), short + 1];
        let neighbours = neighbours.into_iter().filter(|bits| bits & 0x8000 == short & 0x8000);
        neighbours.map(distance).all(|other| own < other || (own == other && short & 1 == 0))
    }

    proptest! {
        #[test]
        fn another_number_would_be_nearer(bits in any::<u32>(), value in -7e4_f32..7e4) {
            for value in [f32::from_bits(bits), value, value * 1e-7] {
                let short = f16(value);
                if short & 0x7fff < 0x7bff {
                    prop_assert!(is_nearest(value.into(), short, from_f16), "{value}");
                }
                let short = bf16(value);
                if short & 0x7fff < 0x7f7f {
                    prop_assert!(is_nearest(value.into(), short, from_bf16), "{value}");
                }
            }
        }
    }
}
