//! A value that lives on a thread of its own, because what it does blocks: SQLite, and long computations.

use std::sync::mpsc;
use tokio::sync::oneshot;

type ThreadJob<T> = Box<dyn FnOnce(&mut T) + Send>;

enum ThreadMessage<T> {
    Run(ThreadJob<T>),
    Stop(oneshot::Sender<()>),
}

/// The thread has ended: it was stopped, or a job panicked.
#[derive(Debug, thiserror::Error)]
#[error("the thread has ended")]
pub struct Gone;

pub struct Thread<T> {
    jobs: mpsc::Sender<ThreadMessage<T>>,
}

impl<T> Clone for Thread<T> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone() }
    }
}

impl<T: Send + 'static> Thread<T> {
    pub fn start(name: &str, mut value: T) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<ThreadMessage<T>>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(message) = inbox.recv() {
                match message {
                    ThreadMessage::Run(job) => job(&mut value),
                    ThreadMessage::Stop(done) => {
                        drop(value);
                        // Nobody may be waiting any more; the value is gone all the same.
                        let _ = done.send(());
                        return;
                    }
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs a job after those before it.
    pub async fn call<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |value: &mut T| drop(reply.send(job(value))));
        self.jobs.send(ThreadMessage::Run(job)).map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }

    /// Ends the thread and waits until the value is dropped. A thread that has ended is left in peace.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.jobs.send(ThreadMessage::Stop(done)).is_ok() {
            let _ = stopped.await;
        }
    }
}
