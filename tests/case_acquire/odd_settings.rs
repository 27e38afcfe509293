//! Settings at their limits are legal, or an error when building; never a panic.

use crate::{SOON, ms, secs};
use quorumlock::{Builder, ErrorKind, Redlock, Released};
use quorumlock_masters::{Fleet, Stopwatch};
use std::time::Duration;

/// A lock that is taken, and one that is not to be had, under odd settings.
async fn check_works(fleet: &Fleet, odd: impl Fn(Builder) -> Builder) {
    let builder = Redlock::builder().masters(fleet.urls());
    let redlock = odd(builder).connect().await.unwrap();
    for server in fleet.iter() {
        server
            .command(&["SET", "taken", "another", "PX", "60000"])
            .unwrap();
        server
            .command(&["SET", "soon", "another", "PX", "150"])
            .unwrap();
    }
    let guard = redlock.lock("soon").wait(secs(10)).acquire().await.unwrap();
    let watch = Stopwatch::start();
    let lock = redlock.lock("taken").wait(ms(200));
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
    assert!(watch.elapsed() >= ms(190), "{:?}", watch.elapsed());
    assert!(watch.elapsed() < secs(2), "{:?}", watch.elapsed());
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    fleet.assert_no_key("soon", SOON);
    for server in fleet.iter() {
        assert_eq!(server.get("taken").unwrap(), b"another");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_30_pauses_of_nothing_for_ever_and_upside_down() {
    let fleet = Fleet::start(3);
    let none = Duration::ZERO;
    for (first, cap) in [(none, none), (none, ms(1)), (ms(50), none)] {
        check_works(&fleet, |builder| builder.retry(first, cap)).await;
    }
}

/// A pause may be longer than the wait: the last try is made before its end all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_30_pauses_longer_than_the_wait() {
    let fleet = Fleet::start(3);
    for (first, cap) in [(Duration::MAX, Duration::MAX), (secs(60), Duration::ZERO)] {
        let builder = Redlock::builder().masters(fleet.urls());
        let redlock = builder.retry(first, cap).connect().await.unwrap();
        for server in fleet.iter() {
            server
                .command(&["SET", "a", "another", "PX", "200"])
                .unwrap();
        }
        let guard = redlock.lock("a").wait(ms(600)).acquire().await.unwrap();
        guard.release().await.unwrap();
        fleet.assert_no_key("a", SOON);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_30_timeouts_without_an_end() {
    let fleet = Fleet::start(3);
    check_works(&fleet, |builder| {
        builder
            .attempt_timeout(Duration::MAX)
            .connect_timeout(Duration::MAX)
            .longest_ttl(Duration::MAX)
    })
    .await;
    check_works(&fleet, |builder| builder.drift_ppm(0)).await;
    check_works(&fleet, |builder| builder.drift_ppm(500_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_30_waits_and_holds_at_their_limits() {
    let fleet = Fleet::start(3);
    let redlock = Redlock::connect(fleet.urls()).await.unwrap();
    let lock = redlock.lock("a");
    for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let guard = lock.clone().wait(wait).acquire().await;
        // A nanosecond may be over before the first answer.
        match guard {
            Ok(guard) => assert!(guard.release().await.is_ok()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
                assert_eq!(wait, Duration::from_nanos(1));
            }
        }
        fleet.assert_no_key("a", SOON);
    }
    for longest in [Duration::MAX, Duration::ZERO] {
        let lock = lock.clone().ttl(ms(400)).max_hold(longest);
        let guard = lock.acquire().await.unwrap();
        if longest.is_zero() {
            guard.lost().await;
            assert!(!guard.is_held());
        } else {
            tokio::time::sleep(ms(600)).await;
            assert!(guard.is_held());
        }
        guard.release().await.unwrap();
        fleet.assert_no_key("a", SOON);
    }
    assert!(redlock.close(Duration::MAX).await.is_empty());
}

#[tokio::test]
async fn case_30_what_can_never_work_is_said_when_building() {
    let check = |odd: &dyn Fn(Builder) -> Builder| {
        let builder = Redlock::builder().master("redis://127.0.0.1:1");
        let error = odd(builder).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadConfiguration, "{error}");
    };
    check(&|builder| builder.attempt_timeout(Duration::ZERO));
    check(&|builder| builder.connect_timeout(Duration::ZERO));
    check(&|builder| builder.longest_ttl(Duration::ZERO));
    check(&|builder| builder.longest_ttl(Duration::from_nanos(1)));
    check(&|builder| builder.drift_ppm(u32::MAX));
    check(&|builder| builder.drift_ppm(500_001));
    check(&|builder| builder.prefix("quorumlock:"));
    check(&|builder| builder.master("not a url"));
    check(&|builder| builder.masters((2..66).map(|port| format!("redis://127.0.0.1:{port}"))));
    let error = Redlock::builder().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadConfiguration, "{error}");
    let nobody: [&str; 0] = [];
    let error = Redlock::connect(nobody).await.unwrap_err();
    assert!(error.is_bad_configuration(), "{error}");
}
