//! A password stands in no error, whatever its cause, and in no debug print.

use crate::{connect, ms, secs};
use quorumlock::{MasterAddress, Redlock};
use quorumlock_masters::{Fleet, ScriptedMaster, Server};
use std::error::Error;
use std::fmt::Debug;

const SECRET: &str = "s3cret";

#[track_caller]
fn check_text(text: &str) {
    assert!(!text.contains(SECRET), "{text}");
}

#[track_caller]
fn check_debug(value: &dyn Debug) {
    check_text(&format!("{value:?}"));
    check_text(&format!("{value:#?}"));
}

/// The error and everything below it.
#[track_caller]
fn check_error(error: &(dyn Error + 'static)) {
    let mut next = Some(error);
    while let Some(error) = next {
        check_debug(&error);
        check_text(&error.to_string());
        next = error.source();
    }
}

fn with_secret(address: std::net::SocketAddr) -> String {
    format!("redis://u:{SECRET}@{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_no_password_in_the_life_of_a_lock() {
    let fleet = Fleet::start(3);
    for server in fleet.iter() {
        let user = ["ACL", "SETUSER", "u", "on", ">s3cret", "~*", "&*", "+@all"];
        server.command(&user).unwrap();
    }
    let urls = fleet.iter().map(|server| with_secret(server.address()));
    let builder = Redlock::builder().masters(urls.clone());
    check_debug(&builder);
    let redlock = builder.connect().await.unwrap();
    check_debug(&redlock);
    let lock = redlock.lock("a").ttl(secs(1));
    check_debug(&lock);
    let guard = lock.clone().acquire().await.unwrap();
    check_debug(&guard);
    check_debug(&guard.held());
    check_error(&lock.clone().try_acquire().await.unwrap_err());
    check_error(&lock.clone().wait(ms(50)).acquire().await.unwrap_err());
    check_error(
        &lock
            .clone()
            .wait(ms(50))
            .run(|_| async {})
            .await
            .unwrap_err(),
    );
    check_debug(&redlock.status("a").await.unwrap());
    fleet[0].kill();
    fleet[1].kill();
    check_error(&guard.extend(secs(1)).await.unwrap_err());
    check_error(&lock.clone().try_acquire().await.unwrap_err());
    check_debug(&redlock.status("a").await.unwrap());
    let loss = guard.lost().await;
    check_debug(&loss);
    check_text(&loss.to_string());
    check_error(&guard.extend(secs(1)).await.unwrap_err());
    check_error(&guard.release().await.unwrap_err());
    check_debug(&redlock.force_release("a").await.unwrap_err());
    check_debug(&guard.into_parts());
    fleet.assert_no_key("a", secs(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_no_password_where_it_is_wrong_or_the_master_unusable() {
    let wrong = Server::builder().password("other").start().unwrap();
    let open = Server::start();
    let scripted = ScriptedMaster::start();
    let urls = [
        with_secret(wrong.address()),
        format!("redis://:{SECRET}@{}", open.address()),
        format!("redis://:{SECRET}@none.invalid:6379"),
        with_secret(scripted.address()),
        format!("redis://u:{SECRET}@127.0.0.1:1/3"),
    ];
    scripted.on_connect(Some(quorumlock_masters::ConnectFault::Garbage(
        b"HTTP/1.1 400\r\n\r\n".to_vec(),
    )));
    let redlock = connect(&urls).await;
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    check_error(&error);
    assert_eq!(error.masters().len(), 5);
    for master in error.masters() {
        check_debug(master);
        check_text(master.address());
        check_text(&master.answer().to_string());
        if let quorumlock::Answer::Failed(fault) = master.answer() {
            check_error(fault);
        }
    }
    check_debug(&redlock.status("a").await.unwrap());
    assert!(!open.exists("a"));
}

#[test]
fn case_35_no_password_in_what_is_wrong_with_an_address() {
    let same = format!("redis://u:{SECRET}@127.0.0.1:1");
    let error = Redlock::builder().masters([&same, &same]).build();
    check_error(&error.unwrap_err());
    for url in [
        format!("u:{SECRET}@127.0.0.1:6379"),
        format!("127.0.0.1:6379,password={SECRET}"),
        format!("redis:/u:{SECRET}@127.0.0.1:6379"),
        format!("redis:u:{SECRET}@127.0.0.1"),
        format!("http://u:{SECRET}@127.0.0.1"),
        format!("redis://u:{SECRET}@127.0.0.1:99999"),
        format!("redis://u:{SECRET}/x@127.0.0.1:6379"),
        format!("redis://u:{SECRET}#x@127.0.0.1:6379"),
        format!("redis://u:{SECRET}@ho st"),
        format!("redis://u:{SECRET}@127.0.0.1/not-a-number"),
        format!("rediss://u:{SECRET}@127.0.0.1:1/#nonsense"),
        format!("redis://u:%zz{SECRET}@127.0.0.1"),
        format!("unix:///nowhere?user=u&pass={SECRET}&db=x"),
    ] {
        let address = MasterAddress::from(url.as_str());
        check_debug(&address);
        let builder = Redlock::builder().master(address);
        check_debug(&builder);
        match builder.build() {
            Ok(redlock) => check_debug(&redlock),
            Err(error) => check_error(&error),
        }
    }
}
