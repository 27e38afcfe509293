//! Steps: releasing, dropping, handing over, rolling back, closing.

use crate::site::{Site, eventually, within};
use quorumlock::{ErrorKind, Loss, Parts, Released};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

pub(crate) async fn releases_everywhere(site: &Site) {
    let client = site.client().await;
    // A client's next acquisition is never refused by its own past.
    for _ in 0..20 {
        let guard = client
            .lock("released")
            .ttl(TTL)
            .try_acquire()
            .await
            .unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
        assert_eq!(
            guard.release().await.unwrap(),
            Released::WasOurs,
            "it repeats its answer"
        );
        assert!(!guard.is_held() && guard.remaining().is_zero());
        assert!(guard.extend(TTL).await.unwrap_err().is_lost());
    }
}

pub(crate) async fn drops_in_the_background(site: &Site) {
    let client = site.client().await;
    for _ in 0..20 {
        drop(client.lock("dropped").ttl(TTL).try_acquire().await.unwrap());
    }
    assert!(eventually(|| site.keys().is_empty()).await);
}

/// A release that comes late must not delete the lock of whoever came next.
pub(crate) async fn spares_the_successor(site: &Site) {
    let (one, other) = (site.client().await, site.client().await);
    let lock = one
        .lock("succeeded")
        .ttl(Duration::from_millis(100))
        .without_watchdog();
    let late = lock.acquire().await.unwrap();
    let next = within("the successor", other.lock("succeeded").ttl(TTL).acquire())
        .await
        .unwrap();
    assert!(!late.is_held(), "two holders");
    // Not on all: on one the old key may have ended just after the new SET came.
    let count = || site.with_token("succeeded", next.token());
    assert!(eventually(|| count() >= site.quorum()).await);
    let all = count();
    assert_eq!(late.release().await.unwrap(), Released::NoLongerOurs);
    drop(late);
    assert!(one.close(Duration::from_secs(3)).await.is_empty());
    assert!(
        count() >= all,
        "a late release deleted the successor's lock"
    );
    assert_eq!(next.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn spares_a_foreign_lock(site: &Site) {
    let (one, other) = (site.client().await, site.client().await);
    let guard = one.lock("foreign").ttl(TTL).acquire().await.unwrap();
    assert!(eventually(|| site.with_token("foreign", guard.token()) == site.size()).await);
    let wrong = [
        &guard.token()[1..],
        "nobody",
        &format!("{}0", guard.token()),
    ]
    .map(str::to_owned);
    for token in wrong {
        assert_eq!(
            other.release("foreign", &token).await.unwrap(),
            Released::NoLongerOurs
        );
    }
    assert_eq!(site.with_token("foreign", guard.token()), site.size());
    // With the right token it is let go, wherever it was acquired.
    assert_eq!(
        other.release("foreign", guard.token()).await.unwrap(),
        Released::WasOurs
    );
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
}

pub(crate) async fn hands_over_and_adopts(site: &Site) {
    let (one, other) = (site.client().await, site.client().await);
    let guard = one.lock("adopted").ttl(TTL).acquire().await.unwrap();
    let parts = guard.into_parts();
    assert_eq!(parts.resource(), b"adopted");
    let token = parts.token().to_owned();
    assert!(eventually(|| site.with_token("adopted", &token) == site.size()).await);
    let error = other
        .adopt(Parts::new("adopted", "nobody"))
        .await
        .unwrap_err();
    assert!(
        matches!(error.loss(), Some(Loss::NotOurs { missing: 0, .. })),
        "{error}"
    );
    let guard = other.adopt(parts).await.unwrap();
    assert!(guard.is_held() && guard.token() == token && guard.remaining() > TTL / 2);
    assert!(
        one.lock("adopted")
            .try_acquire()
            .await
            .unwrap_err()
            .is_held()
    );
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    let error = other
        .adopt(Parts::new("adopted", &*token))
        .await
        .unwrap_err();
    assert!(
        matches!(error.loss(), Some(Loss::NotOurs { foreign: 0, .. })),
        "{error}"
    );
    assert_eq!(
        other
            .adopt(Parts::new("adopted", ""))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::BadInput
    );
}

/// What a minority granted to a refused attempt is undone, and nothing of the holder's.
pub(crate) async fn rolls_back_a_minority(site: &Site) {
    let client = site.client().await;
    site.steal(site.blocking(), "refused", "holder");
    for _ in 0..20 {
        let error = client
            .lock("refused")
            .ttl(TTL)
            .try_acquire()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
    }
    assert!(
        eventually(|| site.keys().len() == site.blocking().len()).await,
        "{:?}",
        site.keys()
    );
    assert_eq!(site.with_token("refused", "holder"), site.blocking().len());
    site.delete(site.blocking(), "refused");
}

pub(crate) async fn outlives_forgotten_scripts(site: &Site) {
    let client = site.client().await;
    let forget = || {
        site.all()
            .for_each(|master| drop(site.call(master, &["SCRIPT", "FLUSH"])))
    };
    forget();
    let guard = client.lock("forgotten").ttl(TTL).acquire().await.unwrap();
    forget();
    guard.extend(TTL).await.unwrap();
    forget();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn closes(site: &Site) {
    let client = site.client().await;
    let kept = client.lock("kept").ttl(TTL).acquire().await.unwrap();
    drop(client.lock("closed").ttl(TTL).acquire().await.unwrap());
    let left = client.close(Duration::from_secs(2)).await;
    assert!(left.is_empty(), "{left:?}");
    assert!(
        site.all()
            .all(|master| site.value(master, "closed").is_none())
    );
    assert!(kept.is_held(), "a guard outlives the closing");
    let error = client.lock("closed").try_acquire().await.unwrap_err();
    assert!(error.is_closed(), "{error}");
    assert_eq!(kept.release().await.unwrap(), Released::WasOurs);
}
