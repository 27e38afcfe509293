//! The list of steps, and how it is run: each on a resource of its own, each leaving no key.

use crate::site::{Site, eventually};
use crate::{holding, letting_go, telling};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Step = (&'static str, for<'a> fn(&'a Site) -> Boxed<'a>);

macro_rules! steps {
    ($($file:ident::$name:ident),* $(,)?) => {
        [$((stringify!($name), {
            fn boxed(site: &Site) -> Boxed<'_> {
                Box::pin($file::$name(site))
            }
            boxed as for<'a> fn(&'a Site) -> Boxed<'a>
        })),*]
    };
}

const STEPS: [Step; 22] = steps![
    holding::acquires_on_all,
    holding::excludes_others,
    holding::waits_for_the_holder,
    holding::extends_and_never_shortens,
    holding::expires_in_time,
    holding::is_told_of_a_theft,
    holding::is_told_when_the_key_is_gone,
    holding::heals_a_minority,
    holding::is_watched_beyond_its_ttl,
    holding::works_under_the_lock,
    letting_go::releases_everywhere,
    letting_go::drops_in_the_background,
    letting_go::spares_the_successor,
    letting_go::spares_a_foreign_lock,
    letting_go::hands_over_and_adopts,
    letting_go::rolls_back_a_minority,
    letting_go::outlives_forgotten_scripts,
    letting_go::closes,
    telling::tells_who_holds,
    telling::forces_a_release,
    telling::takes_any_bytes_as_a_name,
    telling::tells_errors_apart,
];

/// Runs every step, also those after one that failed, and names all that failed.
pub(crate) async fn run(site: &Site) {
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        let begun = async {
            step(site).await;
            let left = eventually(|| site.keys().is_empty()).await;
            assert!(left, "left behind: {:?}", site.keys());
        };
        if fails(begun).await {
            failed.push(name);
            site.clear();
        }
    }
    assert!(failed.is_empty(), "{failed:?} failed on {}", site.name);
}

/// Whether the future panics; what it says then is the test runner's to show.
async fn fails(step: impl Future<Output = ()>) -> bool {
    let mut step = pin!(step);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx)));
        polled.map_or(Poll::Ready(true), |poll| poll.map(|()| false))
    })
    .await
}
