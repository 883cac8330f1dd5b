//! Which server is asked first after a connection was lost.

/// The servers in another order: one of the others first, by chance, and the lost one last. A replica that dies is lost by all its hosts
/// in the same instant. They know the servers in one order, and would otherwise all turn to the same replica.
pub fn after_loss<T: PartialEq>(mut servers: Vec<T>, lost: &T, chance: u32) -> Vec<T> {
    let lost = servers.iter().position(|server| server == lost).map(|at| servers.remove(at));
    let turns = usize::try_from(chance).unwrap_or_default().checked_rem(servers.len());
    servers.rotate_left(turns.unwrap_or_default());
    servers.extend(lost);
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts_that_lose_one_replica_spread_evenly_over_the_others() {
        let mut first = [0u32; 4];
        for chance in 0..300 {
            first[after_loss(vec![0, 1, 2, 3], &2, chance)[0]] += 1;
        }
        assert_eq!(first, [100, 100, 0, 100]);
    }

    #[test]
    fn a_server_that_is_not_listed_any_more_changes_the_beginning_alone() {
        assert_eq!(after_loss(vec![0, 1, 2], &9, 1), [1, 2, 0]);
        assert_eq!(after_loss(vec![0], &0, 7), [0]);
        assert!(after_loss(Vec::<u8>::new(), &0, 7).is_empty());
    }

    proptest! {
        #[test]
        fn every_server_stays_and_the_lost_one_comes_last(count in 1u32..12, lost: u32, chance: u32) {
            let lost = lost % count;
            let mut order = after_loss((0..count).collect(), &lost, chance);
            prop_assert_eq!(order.last(), Some(&lost));
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
