//! Steps: acquiring, excluding, extending, losing, healing.

use crate::site::{Site, eventually, within};
use quorumlock::quorum::Drift;
use quorumlock::{ErrorKind, Loss, Released, RunError};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) async fn acquires_on_all(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("acquired").ttl(TTL).acquire().await.unwrap();
    assert!(guard.is_held());
    assert!(guard.remaining() + Drift::default().of(TTL) <= TTL);
    assert!(guard.remaining() > TTL / 2);
    assert!(eventually(|| site.with_token("acquired", guard.token()) == site.size()).await);
    for master in site.all() {
        assert!((5_000..=10_000).contains(&site.pttl(master, "acquired")));
    }
    // Answers are read when the runtime gets its turn.
    let mut grants = guard.grants();
    within("the last grant", async {
        while grants < site.size() {
            tokio::time::sleep(ms(1)).await;
            grants = guard.grants();
        }
    })
    .await;
    assert_eq!(grants, site.size());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn excludes_others(site: &Site) {
    let (one, other) = (site.client().await, site.client().await);
    let guard = one.lock("excluded").acquire().await.unwrap();
    assert!(eventually(|| site.with_token("excluded", guard.token()) == site.size()).await);
    for client in [&one, &other] {
        let error = client.lock("excluded").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        assert!(error.is_held() && error.denied() >= site.quorum() && error.failed() == 0);
        assert_eq!(error.masters().len(), site.size());
    }
    assert_eq!(site.with_token("excluded", guard.token()), site.size());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    let next = other.lock("excluded").try_acquire().await.unwrap();
    drop(next);
}

pub(crate) async fn waits_for_the_holder(site: &Site) {
    let (one, other) = (site.client().await, site.client().await);
    let guard = one.lock("waited").acquire().await.unwrap();
    let error = other
        .lock("waited")
        .wait(ms(120))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
    assert!(error.is_held() && !error.is_unreachable());
    let waiter = async {
        within("the waiter", other.lock("waited").acquire())
            .await
            .unwrap()
    };
    let holder = async {
        tokio::time::sleep(ms(50)).await;
        guard.release().await.unwrap()
    };
    let (next, released) = tokio::join!(waiter, holder);
    assert_eq!(released, Released::WasOurs);
    assert_eq!(next.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn extends_and_never_shortens(site: &Site) {
    let client = site.client().await;
    let lock = client.lock("extended").ttl(ms(2_000)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    let left = guard.extend(TTL).await.unwrap();
    assert!(left > TTL / 2 && guard.remaining() > TTL / 2, "{left:?}");
    assert!(
        eventually(|| site
            .all()
            .all(|master| site.pttl(master, "extended") > 5_000))
        .await
    );
    // A shorter one succeeds and changes nothing.
    assert!(guard.extend(ms(1_000)).await.unwrap() > TTL / 2);
    for master in site.all() {
        assert!(
            site.pttl(master, "extended") > 5_000,
            "an extension brought the expiry nearer"
        );
    }
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn expires_in_time(site: &Site) {
    let client = site.client().await;
    let lock = client.lock("expired").ttl(ms(200)).without_watchdog();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(within("the loss", guard.lost()).await, Loss::Expired);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(
        eventually(|| site.keys().is_empty()).await,
        "a server kept the key beyond its TTL"
    );
    let error = guard.extend(TTL).await.unwrap_err();
    assert!(
        error.is_lost() && error.loss() == Some(Loss::Expired),
        "{error}"
    );
    assert!(site.keys().is_empty(), "an extension created what was lost");
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
}

pub(crate) async fn is_told_of_a_theft(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("stolen").ttl(TTL).acquire().await.unwrap();
    assert!(eventually(|| site.with_token("stolen", guard.token()) == site.size()).await);
    site.steal(site.all(), "stolen", "thief");
    let error = guard.extend(TTL).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let Some(Loss::NotOurs {
        missing: 0,
        foreign,
    }) = guard.loss()
    else {
        panic!("{:?}", guard.loss());
    };
    assert!(foreign >= site.blocking().len());
    assert!(!guard.is_held() && error.loss() == guard.loss());
    assert_eq!(
        within("the loss", guard.lost()).await,
        guard.loss().unwrap()
    );
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
    drop(guard);
    drop(client);
    assert_eq!(site.with_token("stolen", "thief"), site.size());
    site.delete(site.all(), "stolen");
}

pub(crate) async fn is_told_when_the_key_is_gone(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("gone").ttl(TTL).acquire().await.unwrap();
    assert!(eventually(|| site.with_token("gone", guard.token()) == site.size()).await);
    site.delete(site.blocking(), "gone");
    let error = guard.extend(TTL).await.unwrap_err();
    let Some(Loss::NotOurs {
        missing,
        foreign: 0,
    }) = error.loss()
    else {
        panic!("{error}");
    };
    assert!(missing >= site.blocking().len());
    for master in site.blocking() {
        assert_eq!(
            site.value(master, "gone"),
            None,
            "an extension created what was lost"
        );
    }
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
}

pub(crate) async fn heals_a_minority(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("healed").ttl(TTL).acquire().await.unwrap();
    assert!(eventually(|| site.with_token("healed", guard.token()) == site.size()).await);
    site.delete(site.minority(), "healed");
    guard.extend(TTL).await.unwrap();
    assert!(
        eventually(|| site.with_token("healed", guard.token()) == site.size()).await,
        "a master that had lost the key was not given it again"
    );
    for master in site.all() {
        assert!((5_000..=12_000).contains(&site.pttl(master, "healed")));
    }
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn is_watched_beyond_its_ttl(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("watched").ttl(ms(400)).acquire().await.unwrap();
    let outcome = tokio::time::timeout(ms(1_000), guard.lost()).await;
    assert!(outcome.is_err(), "lost: {outcome:?}");
    assert!(guard.is_held());
    assert_eq!(site.with_token("watched", guard.token()), site.size());
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
}

pub(crate) async fn works_under_the_lock(site: &Site) {
    let client = site.client().await;
    let seen = client.lock("worked").ttl(TTL).run(|held| async move {
        assert!(held.is_held());
        held.token().to_owned()
    });
    let token = seen.await.unwrap();
    assert_eq!(token.len(), 32);
    let stolen = client.lock("worked").ttl(ms(400)).run(|held| async move {
        assert!(eventually(|| site.with_token("worked", held.token()) == site.size()).await);
        site.steal(site.all(), "worked", "thief");
        std::future::pending::<()>().await;
    });
    match within("the work of a lost lock", stolen).await.unwrap_err() {
        RunError::Lost {
            loss: Some(Loss::NotOurs { .. }),
            output: None,
        } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(site.with_token("worked", "thief"), site.size());
    site.delete(site.all(), "worked");
}
