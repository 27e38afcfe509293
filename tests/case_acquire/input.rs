//! What may be asked for: times and names at their limits, refused before a byte is sent or served in full.

use crate::{SOON, connect, ms, secs};
use quorumlock::{BadInput, Error, ErrorKind, Parts, Redlock, Released};
use quorumlock_masters::{Fleet, Relay, Request, Rule, ScriptedMaster, eventually};
use std::error::Error as _;
use std::time::Duration;

/// Three scripted masters, which log every command.
struct Watched {
    masters: Vec<ScriptedMaster>,
    redlock: Redlock,
}

impl Watched {
    async fn start() -> Self {
        let masters: Vec<_> = (0..3).map(|_| ScriptedMaster::start()).collect();
        let urls: Vec<_> = masters.iter().map(ScriptedMaster::url).collect();
        let redlock = connect(&urls).await;
        redlock.status("settled").await.unwrap();
        masters.iter().for_each(ScriptedMaster::clear_log);
        Self { masters, redlock }
    }

    /// Nothing but this lock's commands, and what begins a connection, has come since the start.
    async fn assert_silent_until_now(self) {
        let guard = self.redlock.lock("witness").acquire().await.unwrap();
        guard.release().await.unwrap();
        let token = guard.token();
        for master in &self.masters {
            let told = master.wait_for(SOON, |sent| sent.name() == "EVAL" && sent.mentions(token));
            assert!(told.is_some(), "the witness itself must be seen");
            let commands = master.commands();
            let greetings = ["HELLO", "CLIENT", "INFO"];
            let foreign: Vec<_> = commands
                .iter()
                .filter(|command| !command.mentions("witness"))
                .filter(|command| !greetings.contains(&command.name().as_str()))
                .map(Request::text)
                .collect();
            assert!(foreign.is_empty(), "{foreign:?}");
            assert!(eventually(SOON, || master.keys().is_empty()));
        }
    }
}

fn bad_input(error: &Error) -> &BadInput {
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    assert!(error.masters().is_empty(), "{error}");
    error.source().unwrap().downcast_ref().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_29_impossible_times_are_refused_before_a_byte_is_sent() {
    let watched = Watched::start().await;
    let redlock = &watched.redlock;
    let guard = redlock.lock("witness").acquire().await.unwrap();
    for ttl in [
        Duration::MAX,
        ms(u64::MAX),
        ms(i64::MAX.unsigned_abs()),
        secs(60) + ms(1),
    ] {
        let error = redlock.lock("a").ttl(ttl).try_acquire().await.unwrap_err();
        assert!(matches!(bad_input(&error), BadInput::TtlTooLong { .. }));
        let error = redlock.lock("a").ttl(ttl).acquire().await.unwrap_err();
        assert!(matches!(bad_input(&error), BadInput::TtlTooLong { .. }));
        let error = guard.extend(ttl).await.unwrap_err();
        assert!(matches!(bad_input(&error), BadInput::TtlTooLong { .. }));
        let parts = Parts::new("a", "token").ttl(ttl);
        let error = redlock.adopt(parts).await.unwrap_err();
        assert!(matches!(bad_input(&error), BadInput::TtlTooLong { .. }));
    }
    for ttl in [Duration::ZERO, Duration::from_micros(900)] {
        let error = redlock.lock("a").ttl(ttl).acquire().await.unwrap_err();
        let expected = BadInput::TtlBelowMillisecond { ttl };
        assert_eq!(*bad_input(&error), expected);
        assert_eq!(*bad_input(&guard.extend(ttl).await.unwrap_err()), expected);
    }
    for ttl in [ms(1), ms(2), Duration::from_micros(2_999)] {
        let error = redlock.lock("a").ttl(ttl).acquire().await.unwrap_err();
        assert!(matches!(bad_input(&error), BadInput::TtlWithinDrift { .. }));
    }
    for least in [Duration::MAX, secs(30), ms(30_000 - 302)] {
        let lock = redlock.lock("a").ttl(secs(30)).min_validity(least);
        let error = lock.acquire().await.unwrap_err();
        let reason = bad_input(&error);
        assert!(matches!(reason, BadInput::ValidityOutOfReach { .. }));
    }
    assert!(guard.is_held(), "a refused extension changes nothing");
    guard.release().await.unwrap();
    watched.assert_silent_until_now().await;
}

/// However late the answers of a lock of a few milliseconds are, no validity beyond its TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_29_the_validity_of_the_shortest_locks_never_exceeds_the_ttl() {
    let fleet = Fleet::start(3);
    let relays: Vec<_> = fleet.iter().map(|of| Relay::to(of.address())).collect();
    let urls: Vec<_> = relays.iter().map(Relay::url).collect();
    let redlock = connect(&urls).await;
    let mut granted = 0;
    for delay in [0, 1, 2, 5, 10, 50] {
        relays
            .iter()
            .for_each(|of| of.answers(Rule::Delay(ms(delay))));
        for ttl in [3, 10, 60] {
            for try_number in 0..5 {
                let resource = format!("a{delay}-{ttl}-{try_number}");
                let lock = redlock.lock(&resource).ttl(ms(ttl)).without_watchdog();
                match lock.try_acquire().await {
                    Ok(guard) => {
                        granted += 1;
                        let most = Duration::from_micros(ttl * 990 - 2_000);
                        assert!(guard.remaining() <= most, "{:?}", guard.remaining());
                    }
                    Err(error) => assert!(
                        error.is_too_slow() || error.is_unreachable(),
                        "{resource}: {error}"
                    ),
                }
                fleet.assert_no_key(&resource, SOON);
            }
        }
    }
    assert!(granted > 0, "no lock at all was granted");
}

/// What every server can store is served: a hundred years, if the deployment allows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_29_the_longest_ttl_of_all_works_on_a_real_server() {
    let fleet = Fleet::start(1);
    let builder = Redlock::builder().masters(fleet.urls());
    let redlock = builder.longest_ttl(Duration::MAX).connect().await.unwrap();
    let century = secs(100 * 365 * 24 * 60 * 60);
    let guard = redlock.lock("a").ttl(century).try_acquire().await.unwrap();
    assert!(guard.remaining() <= century / 100 * 99);
    assert!(guard.remaining() > century / 100 * 98);
    assert!(guard.extend(century).await.unwrap() <= century / 100 * 99);
    assert_eq!(guard.release().await.unwrap(), Released::WasOurs);
    let lock = redlock.lock("a").ttl(century + ms(1));
    let error = lock.try_acquire().await.unwrap_err();
    assert!(matches!(bad_input(&error), BadInput::TtlTooLong { .. }));
    fleet.assert_no_key("a", SOON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_31_any_bytes_are_a_name() {
    let fleet = Fleet::start(3);
    let redlock = connect(&fleet.urls()).await;
    let long = vec![b'x'; 1 << 20];
    let names: [&[u8]; 10] = [
        b"\x00\xff\x0a\x0d\x20",
        b" ",
        b"\n",
        b"two words",
        b"{tag}",
        b"*",
        b"quorumlock",
        b"QUORUMLOCK:member",
        "\u{1f512} \u{202e}".as_bytes(),
        &long,
    ];
    for name in names {
        let shown = name[..name.len().min(40)].escape_ascii();
        let guard = redlock.lock(name).try_acquire().await.unwrap();
        assert_eq!(guard.resource(), name);
        for &holder in &fleet.holders(name) {
            assert_eq!(fleet[holder].keys(), [name], "{shown}");
            assert_eq!(fleet[holder].get(name).unwrap(), guard.token().as_bytes());
        }
        assert!(fleet.holders(name).len() >= 2, "{shown}");
        let error = redlock.lock(name).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{shown}: {error}");
        let paragraph = error.to_string();
        assert!(paragraph.len() < 1_000, "{} bytes", paragraph.len());
        let printable = |c: char| !c.is_control();
        assert!(paragraph.chars().all(printable), "{paragraph:?}");
        guard.extend(secs(30)).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasOurs, "{shown}");
        fleet.assert_no_key(name, SOON);
    }
    assert_eq!(fleet.total_keys(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_31_no_name_and_our_own_names_are_refused_before_a_byte_is_sent() {
    let watched = Watched::start().await;
    let urls = watched.masters.iter().map(ScriptedMaster::url);
    let builder = Redlock::builder().masters(urls).prefix("quorum");
    let prefixed = builder.connect().await.unwrap();
    prefixed.status("settled").await.unwrap();
    watched.masters.iter().for_each(ScriptedMaster::clear_log);
    let check = async |handle: &Redlock, name: &str, expected: BadInput| {
        let acquired = handle.lock(name).acquire().await.unwrap_err();
        assert_eq!(*bad_input(&acquired), expected, "{name:?}");
        let run = handle.lock(name).run(|_| async {}).await.unwrap_err();
        assert_eq!(*bad_input(run.not_acquired().unwrap()), expected);
        let looked = handle.status(name).await.unwrap_err();
        assert_eq!(*bad_input(&looked), expected);
        let released = handle.release(name, "token").await.unwrap_err();
        assert_eq!(*bad_input(&released), expected);
        let forced = handle.force_release(name).await.unwrap_err();
        assert_eq!(*bad_input(&forced), expected);
        let adopted = handle.adopt(Parts::new(name, "token")).await.unwrap_err();
        assert_eq!(*bad_input(&adopted), expected);
    };
    check(&watched.redlock, "", BadInput::EmptyResource).await;
    // With a prefix the key would not be empty; the name still is.
    check(&prefixed, "", BadInput::EmptyResource).await;
    for name in ["quorumlock:", "quorumlock:member", "quorumlock:fence:a"] {
        check(&watched.redlock, name, BadInput::ReservedResource).await;
    }
    check(&prefixed, "lock:member", BadInput::ReservedResource).await;
    let error = watched.redlock.release("a", "").await.unwrap_err();
    assert_eq!(*bad_input(&error), BadInput::EmptyToken);
    watched.assert_silent_until_now().await;
}
