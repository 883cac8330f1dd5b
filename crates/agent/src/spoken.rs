//! A length of time, as people say it.

/// In the two largest units that are not zero.
pub fn spoken(millis: u64) -> String {
    let parts = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let (mut left, mut said) = (millis, Vec::new());
    for (size, unit) in parts {
        let (count, rest) = (left / size, left % size);
        if count > 0 && said.len() < 2 {
            said.push(format!("{count} {unit}"));
        }
        left = rest;
    }
    if said.is_empty() { "0 s".to_owned() } else { said.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_said_as_people_say_them() {
        assert_eq!(spoken(0), "0 s");
        assert_eq!(spoken(250), "250 ms");
        assert_eq!(spoken(7_380_000), "2 h 3 min");
        assert_eq!(spoken(86_400_000 * 400), "400 d");
    }
}
