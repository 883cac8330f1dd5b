use super::*;
use lifecycle::names::Source;

fn networks(text: &str) -> Vec<Source> {
    Source::Address(text.parse().expect("an address")).networks()
}

fn enter(pool: &Arc<SharedPool<Source>>, from: &str, used: PlaceUse) -> Option<PoolPlace<Source>> {
    pool.enter(&networks(from), used, CancellationToken::new())
}

fn displaced(places: &[PoolPlace<Source>]) -> usize {
    places.iter().filter(|place| place.displaced.is_cancelled()).count()
}

#[tokio::test]
async fn one_network_may_have_all_and_gives_way_to_others() {
    let pool = SharedPool::new(100, usize::MAX);
    let many: Vec<_> = (0..100).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Active)).collect();
    assert_eq!((many.len(), displaced(&many)), (100, 0));
    assert!(enter(&pool, "192.0.2.1", PlaceUse::Active).is_none(), "its own share is used");
    // A neighbour in the same network, and someone from elsewhere.
    let neighbour = enter(&pool, "192.0.2.2", PlaceUse::Active);
    let other = enter(&pool, "198.51.100.1", PlaceUse::Active);
    assert!(neighbour.is_some() && other.is_some());
    assert_eq!(displaced(&many), 2);
    assert!(many[0].displaced.is_cancelled() && many[1].displaced.is_cancelled(), "the oldest");
    drop(many);
    assert_eq!(pool.held().holders.len(), 2);
}

#[tokio::test]
async fn a_place_at_work_is_never_given_up() {
    let pool = SharedPool::new(10, usize::MAX);
    let many: Vec<_> = (0..10).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Idle)).collect();
    many.iter().for_each(|place| place.set(PlaceUse::Protected));
    assert!(enter(&pool, "198.51.100.1", PlaceUse::Active).is_none());
    many[7].set(PlaceUse::Active);
    assert!(enter(&pool, "198.51.100.1", PlaceUse::Active).is_some());
    assert!(many[7].displaced.is_cancelled() && displaced(&many) == 1);
}

#[tokio::test]
async fn a_site_is_one_network_however_many_it_is_cut_into() {
    let pool = SharedPool::new(256, usize::MAX);
    let site: Vec<_> =
        (0..252).filter_map(|i| enter(&pool, &format!("2001:db8:1:{i:x}00::1"), PlaceUse::Active)).collect();
    let host: Vec<_> = (0..4).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Active)).collect();
    // Its four places are more than any /56 of the site has, and still the site gives way.
    let more: Vec<_> = (0..100).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Active)).collect();
    assert_eq!((more.len(), displaced(&site), displaced(&host)), (100, 100, 0));
}

#[tokio::test]
async fn what_is_idle_gives_way_to_anyone_after_a_while() {
    let pool = SharedPool::new(10, usize::MAX);
    let all: Vec<_> = (0..10).filter_map(|i| enter(&pool, &format!("192.0.{i}.1"), PlaceUse::Idle)).collect();
    assert!(enter(&pool, "198.51.100.1", PlaceUse::Idle).is_none(), "each network has one");
    let limit = Duration::from_secs(10);
    let path = networks("198.51.100.1");
    let late = pool.wait(&path, PlaceUse::Idle, CancellationToken::new(), limit).await;
    assert!(late.is_some() && displaced(&all) == 1);
    let own = pool.wait(&networks("192.0.5.1"), PlaceUse::Idle, CancellationToken::new(), limit).await;
    assert!(own.is_some() && all[5].displaced.is_cancelled());
}

#[tokio::test]
async fn who_waits_has_the_place_that_is_left_or_none_in_time() {
    let pool = SharedPool::new(1, usize::MAX);
    let only = enter(&pool, "192.0.2.1", PlaceUse::Protected);
    let path = networks("192.0.2.1");
    let limit = Duration::from_millis(300);
    assert!(pool.wait(&path, PlaceUse::Idle, CancellationToken::new(), limit).await.is_none());
    let (waited, ()) =
        tokio::join!(pool.wait(&path, PlaceUse::Idle, CancellationToken::new(), limit), async { drop(only) });
    assert!(waited.is_some());
    drop(waited);
    assert!(pool.held().groups.len() == 1 && pool.held().stale.is_empty(), "nothing is left behind");
}

#[tokio::test]
async fn places_are_shared_by_what_they_weigh() {
    let pool = SharedPool::new(100, 60);
    let weighed = |from: &str, weight| {
        let displaced = CancellationToken::new();
        pool.enter_weighed(&networks(from), weight, PlaceUse::Active, displaced)
    };
    let many: Vec<_> = (0..3).filter_map(|_| weighed("192.0.2.1", 20)).collect();
    assert!(many.len() == 3 && weighed("192.0.2.1", 1).is_none(), "one member has its own");
    let _other = weighed("198.51.100.1", 35);
    assert_eq!(displaced(&many), 0, "there was room");
    let _third = weighed("203.0.113.1", 39);
    assert_eq!(displaced(&many), 2, "as many as it takes, of whoever has most");
    assert!(weighed("203.0.113.2", 61).is_none(), "more than one may ever have");
    assert_eq!(pool.held().count(&[]), 94);
    drop(many);
    assert_eq!(pool.held().count(&[]), 74);
}

#[tokio::test]
async fn a_place_that_turns_out_to_be_larger_takes_from_who_has_most_or_goes() {
    let pool = SharedPool::new(20, usize::MAX);
    let many: Vec<_> = (0..15).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Idle)).collect();
    let few: Vec<_> = (0..2).filter_map(|_| enter(&pool, "198.51.100.1", PlaceUse::Idle)).collect();
    few[0].enlarge(8);
    few[0].enlarge(8);
    assert_eq!((displaced(&many), displaced(&few), pool.taken()), (4, 0, 20));
    many[14].enlarge(8);
    assert!(many[14].displaced.is_cancelled() && displaced(&few) == 0, "it has most itself");
    let taken = pool.taken();
    drop((many, few));
    assert!(taken <= 20 && pool.taken() == 0 && pool.held().stale.is_empty());
}

#[tokio::test]
async fn a_handshake_gives_way_to_who_holds_far_less() {
    let pool = SharedPool::new(32, usize::MAX);
    let of = |from: &'static str, count: usize| -> Vec<_> {
        (0..count).filter_map(|_| enter(&pool, from, PlaceUse::Handshake)).collect()
    };
    let (many, few) = (of("192.0.2.1", 20), of("192.0.2.2", 12));
    assert!(enter(&pool, "192.0.2.2", PlaceUse::Handshake).is_none(), "as many machines, by and large");
    assert!(enter(&pool, "192.0.2.3", PlaceUse::Handshake).is_some(), "a neighbour of both");
    assert_eq!((displaced(&many), displaced(&few)), (1, 0));
}

#[tokio::test]
async fn a_member_that_has_all_of_its_own_gives_up_what_is_idle_longest() {
    let pool = SharedPool::replacing(100, 3, usize::MAX);
    let own: Vec<_> = (0..3).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Idle)).collect();
    own[0].set(PlaceUse::Protected);
    own[1].set(PlaceUse::Active);
    let more = enter(&pool, "192.0.2.1", PlaceUse::Protected);
    assert!(more.is_some() && own[2].displaced.is_cancelled() && displaced(&own) == 1);
    let _more = enter(&pool, "192.0.2.1", PlaceUse::Protected);
    assert!(own[1].displaced.is_cancelled() && displaced(&own) == 2);
    let _most = enter(&pool, "192.0.2.1", PlaceUse::Idle);
    assert!(own[0].displaced.is_cancelled(), "a live stream only if all carry one");
    assert_eq!(pool.taken(), 3);
}

#[tokio::test]
async fn a_pool_whose_places_are_called_in_has_room_for_no_more() {
    let pool = SharedPool::new(10, usize::MAX);
    let many: Vec<_> = (0..10).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Idle)).collect();
    pool.give_up();
    assert_eq!((pool.taken(), displaced(&many)), (9, 1));
    let enter = |from: &str| pool.enter_among(5, &networks(from), PlaceUse::Idle, CancellationToken::new());
    assert!(enter("192.0.2.1").is_none(), "its own is the largest");
    let other = enter("192.0.2.2");
    assert!(other.is_some(), "who has none takes one of another");
    assert_eq!((pool.taken(), displaced(&many)), (9, 2));
}

#[tokio::test]
async fn one_member_may_not_have_more_than_its_own() {
    let pool = SharedPool::new(100, 3);
    let own: Vec<_> = (0..5).filter_map(|_| enter(&pool, "192.0.2.1", PlaceUse::Protected)).collect();
    assert_eq!(own.len(), 3);
    assert!(enter(&pool, "192.0.2.2", PlaceUse::Protected).is_some());
}

#[tokio::test]
async fn as_many_networks_as_there_are_places_do_not_keep_them() {
    let pool = SharedPool::new(10, usize::MAX);
    let from = |i: usize| format!("192.0.{i}.1");
    let all: Vec<_> = (0..10).filter_map(|i| enter(&pool, &from(i), PlaceUse::Handshake)).collect();
    assert!(enter(&pool, "198.51.100.1", PlaceUse::Handshake).is_none(), "each network has one");
    let limit = Duration::from_secs(30);
    let path = networks("198.51.100.1");
    let late = pool.wait(&path, PlaceUse::Handshake, CancellationToken::new(), limit).await;
    assert!(late.is_some() && displaced(&all) == 1 && all[0].displaced.is_cancelled(), "the oldest");
}
