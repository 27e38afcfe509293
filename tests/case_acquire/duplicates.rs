//! One server behind two entries, seen only when the handle is in use.

use crate::{SOON, connect, fault, faults, ms, secs};
use quorumlock::{ErrorKind, FaultKind, Released};
use quorumlock_masters::{Fleet, Relay, Stopwatch};

/// The second way to the server opens only when the handle is in use: then neither votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_34_a_duplicate_found_later_loses_both_votes() {
    let fleet = Fleet::start(2);
    let relay = Relay::to(fleet[0].address());
    relay.refuse(true);
    let urls = [fleet[0].url(), relay.url(), fleet[1].url()];
    let redlock = connect(&urls).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    relay.heal();
    let watch = Stopwatch::start();
    let duplicates = [Some(FaultKind::Duplicate), Some(FaultKind::Duplicate), None];
    let error = loop {
        match redlock.lock("a").try_acquire().await {
            Ok(guard) => drop(guard.release().await),
            Err(error) if faults(&error) == duplicates => break error,
            Err(error) => assert!(error.is_unreachable(), "{error}"),
        }
        assert!(watch.elapsed() < secs(10), "the duplicate is not noticed");
    };
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    for (index, twin) in [(0, 1), (1, 0)] {
        let fault = fault(&error, index).unwrap_or_else(|| panic!("{error}"));
        assert_eq!(fault.kind(), FaultKind::Duplicate, "{error}");
        let address = urls[twin].trim_start_matches("redis://");
        assert!(fault.to_string().contains(address), "{fault}");
    }
    fleet.assert_no_key("a", SOON);
    // Both are looked at again with a backoff, not as fast as it goes.
    let before = relay.connections().total;
    tokio::time::sleep(ms(2_000)).await;
    let looks = relay.connections().total - before;
    assert!(looks <= 40, "{looks} connections in two seconds");
}

/// The lock was held on a master that then turns out to be there twice: its key goes all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_34_what_a_duplicate_was_sent_is_undone() {
    let fleet = Fleet::start(2);
    let relay = Relay::to(fleet[0].address());
    relay.refuse(true);
    let urls = [fleet[0].url(), relay.url(), fleet[1].url()];
    let redlock = connect(&urls).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    assert_eq!(fleet.holders("a"), [0, 1]);
    relay.heal();
    let watch = Stopwatch::start();
    loop {
        let status = redlock.status("b").await.unwrap();
        if status.answered() == 1 {
            break;
        }
        assert!(watch.elapsed() < secs(10), "the duplicate is not noticed");
    }
    drop(guard);
    fleet.assert_no_key("a", SOON);
}
