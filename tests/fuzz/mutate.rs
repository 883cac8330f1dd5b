//! Small changes to known inputs, always the same ones from the same seed.

/// xorshift64*: fast, and good enough to choose places and bytes.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 32) as usize).checked_rem(end).unwrap_or(0)
    }

    /// A part of `length`, as its two ends.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        start..(start + 1 + self.below(64)).min(length)
    }
}

/// Lengths, signs and marks at which readers tend to trip.
const ODD: &[u8] = b"\x00\x01\x7f\x80\x81\x84\xa0\xc1\xc6\xdb\xdf\xff\x30\"\\{}[]=:/,.\n%-09";
const MAX: usize = 64 * 1024;

/// One of the inputs with one to four changes.
pub fn mutated(inputs: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut input = pick(inputs, chance).to_vec();
    for _ in 0..=chance.below(4) {
        change(&mut input, inputs, chance);
    }
    input.truncate(MAX);
    input
}

fn pick<'a>(inputs: &'a [Vec<u8>], chance: &mut Chance) -> &'a [u8] {
    inputs.get(chance.below(inputs.len())).map_or(&[], Vec::as_slice)
}

fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], chance: &mut Chance) {
    let place = chance.below(input.len());
    let odd = ODD.get(chance.below(ODD.len())).copied().unwrap_or(0);
    let kind = chance.below(7);
    match (kind, input.get_mut(place)) {
        (0, Some(byte)) => *byte ^= 1 << chance.below(8),
        (1, Some(byte)) => *byte = odd,
        (2, Some(byte)) => *byte = byte.wrapping_add(1 + chance.below(255) as u8),
        (3, Some(_)) => input.truncate(place),
        (4, Some(_)) => drop(input.drain(chance.part(input.len()))),
        (5, Some(_)) => {
            let again = input.get(chance.part(input.len())).unwrap_or_default().to_vec();
            input.splice(place..place, again);
        }
        _ => {
            let other = pick(inputs, chance);
            let part = other.get(chance.part(other.len())).unwrap_or(&[odd]).to_vec();
            input.splice(place..place, part);
        }
    }
}
