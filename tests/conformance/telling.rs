//! Steps: who holds, forced release, names of any bytes, errors told apart.

use crate::site::{Site, eventually};
use quorumlock::{Answer, BadInput, ErrorKind, KeyState, Released, Verdict};
use std::error::Error as _;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

pub(crate) async fn tells_who_holds(site: &Site) {
    let client = site.client().await;
    assert_eq!(
        client.status("told").await.unwrap().verdict(),
        Verdict::Free
    );
    let guard = client.lock("told").ttl(TTL).acquire().await.unwrap();
    let token = guard.token().as_bytes().to_vec();
    assert!(eventually(|| site.with_token("told", guard.token()) == site.size()).await);
    let check = |masters| Verdict::Held {
        token: token.clone(),
        masters,
    };
    let status = client.status("told").await.unwrap();
    assert_eq!(status.verdict(), check(site.size()));
    assert_eq!(
        (status.quorum(), status.answered()),
        (site.quorum(), site.size())
    );
    for master in status.masters() {
        let KeyState::Held {
            token: seen,
            ttl_left,
        } = master.state()
        else {
            panic!("{master:?}");
        };
        assert!(*seen == token && *ttl_left <= TTL && *ttl_left > TTL / 2);
    }
    site.steal(site.minority(), "told", "thief");
    assert_eq!(
        client.status("told").await.unwrap().verdict(),
        check(site.quorum())
    );
    site.delete(site.minority(), "told");
    assert_eq!(
        client.status("told").await.unwrap().verdict(),
        check(site.quorum())
    );
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(eventually(|| site.keys().is_empty()).await);
    assert_eq!(
        client.status("told").await.unwrap().verdict(),
        Verdict::Free
    );
}

pub(crate) async fn forces_a_release(site: &Site) {
    let client = site.client().await;
    let guard = client.lock("forced").ttl(TTL).acquire().await.unwrap();
    assert!(eventually(|| site.with_token("forced", guard.token()) == site.size()).await);
    let answers = client.force_release("forced").await.unwrap();
    assert!(
        answers
            .iter()
            .all(|master| matches!(master.answer(), Answer::Granted)),
        "{answers:?}"
    );
    assert!(site.keys().is_empty());
    let answers = client.force_release("forced").await.unwrap();
    assert!(
        answers
            .iter()
            .all(|master| matches!(master.answer(), Answer::Denied)),
        "{answers:?}"
    );
    assert!(guard.extend(TTL).await.unwrap_err().is_lost());
    assert_eq!(guard.release().await.unwrap(), Released::NoLongerOurs);
}

pub(crate) async fn takes_any_bytes_as_a_name(site: &Site) {
    let client = site.client().await;
    let long = vec![b'x'; 1024 * 1024];
    let every: Vec<u8> = (0..=255).collect();
    let names: [&[u8]; 9] = [
        b"\x00\xff\n\r ",
        b" ",
        b"two\nlines",
        b"*3\r\n$3\r\nDEL\r\n",
        b"{tag}",
        "Schlo\u{df} \u{1f512}".as_bytes(),
        b"quorumlock",
        &every,
        &long,
    ];
    for name in names {
        let guard = client.lock(name).ttl(TTL).acquire().await.unwrap();
        assert_eq!(guard.resource(), name);
        assert!(eventually(|| site.with_token(name, guard.token()) == site.size()).await);
        let error = client.lock(name).try_acquire().await.unwrap_err();
        assert!(error.is_held() && error.to_string().len() < 2_000);
        guard.extend(TTL).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    }
}

pub(crate) async fn tells_errors_apart(site: &Site) {
    let client = site.client().await;
    let lock = || client.lock("odd").ttl(TTL);
    for strange in ["another type", "no expiry"] {
        if strange == "no expiry" {
            for master in site.all() {
                site.call(master, &[b"SET".as_slice(), &site.key("odd"), b"x"]);
            }
        } else {
            site.set_other_type(site.all(), "odd");
        }
        // Waiting for ever would not help, so it does not wait.
        let error = lock().acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotALock, "{strange}: {error}");
        let status = client.status("odd").await.unwrap();
        assert!(
            status
                .masters()
                .iter()
                .all(|master| matches!(master.state(), KeyState::NotALock))
        );
        assert_eq!(
            client.release("odd", "x y").await.unwrap(),
            Released::NoLongerOurs
        );
        assert_eq!(
            site.keys().len(),
            site.size(),
            "what is no lock was deleted"
        );
        site.delete(site.all(), "odd");
    }
    // On a minority it stands in nobody's way, and stays.
    site.set_other_type(site.minority(), "odd");
    let guard = lock().try_acquire().await.unwrap();
    guard.extend(TTL).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    assert!(eventually(|| site.keys().len() == site.minority().len()).await);
    site.delete(site.minority(), "odd");

    let bad = |error: quorumlock::Error| {
        assert!(
            error.is_bad_input() && error.masters().is_empty(),
            "{error}"
        );
        error
            .source()
            .unwrap()
            .downcast_ref::<BadInput>()
            .unwrap()
            .clone()
    };
    assert_eq!(
        bad(client.lock("").try_acquire().await.unwrap_err()),
        BadInput::EmptyResource
    );
    for ttl in [Duration::ZERO, Duration::from_micros(900)] {
        let told = bad(lock().ttl(ttl).try_acquire().await.unwrap_err());
        assert_eq!(told, BadInput::TtlBelowMillisecond { ttl });
    }
    let told = bad(lock().ttl(Duration::MAX).try_acquire().await.unwrap_err());
    assert!(matches!(told, BadInput::TtlTooLong { .. }));
    let told = bad(lock().min_validity(TTL).try_acquire().await.unwrap_err());
    assert!(matches!(told, BadInput::ValidityOutOfReach { .. }));
}
