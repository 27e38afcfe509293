//! Work under a lock: acquire, run, cancel on loss, release (R18).

use super::guard::{Guard, Released};
use super::held::Held;
use super::request::Lock;
use crate::error::Error;
use crate::quorum::Loss;
use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Why work under a lock has no plain result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not acquired; the work was not begun.
    NotAcquired(Error),
    /// The lock was lost before the work was known to be complete under it.
    Lost {
        /// Why the lock was lost; `None` where only the release found it no longer ours.
        loss: Option<Loss>,
        /// What the work had finished all the same; `None` where it was cancelled.
        output: Option<T>,
    },
}

impl<T> RunError<T> {
    /// Whether the lock was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Why the lock was not acquired, if it was not.
    pub fn not_acquired(&self) -> Option<&Error> {
        match self {
            Self::NotAcquired(error) => Some(error),
            Self::Lost { .. } => None,
        }
    }

    /// What the work had finished although the lock was lost.
    pub fn into_output(self) -> Option<T> {
        match self {
            Self::NotAcquired(_) => None,
            Self::Lost { output, .. } => output,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> RunError<U> {
        match self {
            Self::NotAcquired(error) => RunError::NotAcquired(error),
            Self::Lost { loss, output } => RunError::Lost {
                loss,
                output: output.map(change),
            },
        }
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => write!(f, "{error}"),
            Self::Lost { loss, output } => {
                f.write_str("the lock was lost while the work ran")?;
                match loss {
                    Some(loss) => write!(f, ": {loss}")?,
                    None => f.write_str(": the release found that it was no longer ours")?,
                }
                f.write_str(if output.is_some() {
                    " (the work had finished)"
                } else {
                    " (the work was cancelled)"
                })
            }
        }
    }
}

impl<T: fmt::Debug> StdError for RunError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.not_acquired().map(|error| error as _)
    }
}

impl Lock {
    /// Acquires the lock, runs the work under it, and releases.
    ///
    /// The lock is extended while the work runs. If it is lost, the work is cancelled: its future
    /// is dropped at the await where it stands. `Ok` means that the work was complete while the
    /// validity still lasted, and that the release did not find the lock somebody else's; a
    /// release that could not be confirmed in time hides no result.
    ///
    /// The work's own result is handed through as it is; [`try_run`](Self::try_run) flattens it.
    ///
    /// # Errors
    /// - [`RunError::NotAcquired`]: as [`acquire`](Self::acquire); the work was not begun.
    /// - [`RunError::Lost`]: the lock was lost; an output that was finished is inside.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases in the background.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(redlock: quorumlock::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// let total = redlock
    ///     .lock("report:monthly")
    ///     .wait(Duration::from_secs(5))
    ///     .run(|held| async move {
    ///         assert!(held.is_held());
    ///         42
    ///     })
    ///     .await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F, Fut, T>(self, work: F) -> Result<T, RunError<T>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        let held = guard.held();
        // Checked again before the hand-over to the work (R8).
        if let Some(loss) = held.loss() {
            return Err(RunError::Lost {
                loss: Some(loss),
                output: None,
            });
        }
        match under(&guard, work(held)).await {
            Ok(output) => finish(guard, output).await,
            // The work is dropped; dropping the guard sends nothing but deletes.
            Err(loss) => Err(RunError::Lost {
                loss: Some(loss),
                output: None,
            }),
        }
    }

    /// As [`run`](Self::run), for work that can fail: one `?` tells both kinds of errors apart.
    ///
    /// The work's own error comes first: it is returned even if the lock was lost as well.
    ///
    /// # Errors
    /// The work's own error, or a [`RunError`] turned into it by `From`.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<F, Fut, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        match self.run(work).await {
            Ok(result) => result,
            Err(RunError::Lost {
                output: Some(Err(error)),
                ..
            }) => Err(error),
            Err(lost) => {
                // An output that is an error has been returned above.
                let mut value = None;
                let plain = lost.map(|result| value = result.ok());
                Err(E::from(match plain {
                    RunError::NotAcquired(error) => RunError::NotAcquired(error),
                    RunError::Lost { loss, .. } => RunError::Lost {
                        loss,
                        output: value,
                    },
                }))
            }
        }
    }
}

/// Runs the work until it is complete or the lock is lost.
async fn under<T>(guard: &Guard, work: impl Future<Output = T>) -> Result<T, Loss> {
    let mut work = pin!(work);
    let mut lost = pin!(guard.lost());
    poll_fn(|cx| {
        // Lost work is not given another step.
        if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(loss));
        }
        work.as_mut().poll(cx).map(Ok)
    })
    .await
}

async fn finish<T>(guard: Guard, output: T) -> Result<T, RunError<T>> {
    if let Some(loss) = guard.loss() {
        return Err(RunError::Lost {
            loss: Some(loss),
            output: Some(output),
        });
    }
    match guard.release().await {
        Ok(Released::NoLongerOurs) => Err(RunError::Lost {
            loss: None,
            output: Some(output),
        }),
        // A release that could not be confirmed goes on in the background.
        Ok(Released::WasOurs) | Err(_) => Ok(output),
    }
}
