//! Feeds the process's use of its device to the [`Watch`], and applies the result.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::account::{LogClock, Written};
use super::touch::{self, Toucher};
use super::watch::{Changed, Totals, Watch};
use super::{rate, Measurer, Present};

const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Minimum commands per second of a store that counts as serving.
pub const SERVING_OPS_PER_S: f64 = 50.0;

/// Watches the device until the task is dropped.
pub async fn watch_device(measurer: &Measurer) {
    let mut watcher = Watcher::default();
    let mut period = tokio::time::interval(LOOK_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut kernel_tells = true;
    loop {
        period.tick().await;
        let looked = watcher.look(measurer).await;
        match &looked {
            // Without the kernel's counts (or in a container that hides them) no judgement is
            // possible.
            Err(error) if kernel_tells => {
                tracing::warn!(%error, "the kernel does not report this process's writes: the device is not watched");
            }
            Ok(()) if !kernel_tells => tracing::info!("the kernel reports this process's writes again"),
            _ => {}
        }
        kernel_tells = looked.is_ok();
    }
}

/// Feeds the store's counts to the watch.
#[derive(Default)]
pub(super) struct Watcher {
    watch: Option<Watch>,
    measurements: u64,
    /// The time for which writes of the log waited for the device, as of the last look.
    blocked: Duration,
    began: Option<Instant>,
    written: Written,
    bytes: u64,
    bytes_per_s: f64,
    looked_at: Option<Instant>,
    toucher: Toucher,
}

impl Watcher {
    async fn look(&mut self, measurer: &Measurer) -> std::io::Result<()> {
        let own = &measurer.own;
        let (measurements, reference) = own.reference();
        let Some(reference) = reference else { return Ok(()) };
        if self.watch.is_none() || measurements != self.measurements {
            self.watch = Some(Watch::new(reference));
            self.measurements = measurements;
        }
        let now = self.began.get_or_insert_with(Instant::now).elapsed();
        let totals = self.totals(&own.log)?;
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let neighbours = measurer.cluster.neighbours();
        watch.share(neighbours.sharers);
        if own.probing.load(Ordering::Acquire) || neighbours.sitting {
            watch.skip();
            return Ok(());
        }
        let mut changed = watch.observe(now, totals);
        let is_serving = measurer.metrics.recent().0 >= SERVING_OPS_PER_S;
        if watch.wants_touch(now, is_serving) && measurer.disk.room() > touch::FILE_BYTES {
            match self.toucher.touch(&measurer.config.dir, self.bytes_per_s).await {
                Ok(touch) => changed = watch.touched(now, touch).or(changed),
                Err(error) => tracing::debug!(%error, "the device could not be touched"),
            }
        }
        own.correct(watch);
        if let Some(changed) = changed {
            say_changed(changed, own.present());
            measurer.cluster.report_soon.notify_one();
        }
        Ok(())
    }

    /// Returns the counts.
    pub(super) fn totals(&mut self, log: &LogClock) -> std::io::Result<Totals> {
        let bytes = self.written.bytes(log)?;
        let at = Instant::now();
        if let Some(before) = self.looked_at.replace(at) {
            let seconds = at.duration_since(before).as_secs_f64().max(1e-3);
            self.bytes_per_s = bytes.saturating_sub(self.bytes) as f64 / seconds;
        }
        self.bytes = bytes;
        let log_bytes = self.written.log_bytes();
        self.blocked = self.blocked.max(log.blocked()?);
        Ok(Totals { blocked: self.blocked, syncs: log.syncs(), bytes, log_bytes })
    }
}

fn say_changed(changed: Changed, present: Present) {
    let Changed { before, correction, ratio } = changed;
    let counts = format!(
        "placement now counts {:.0}% of this store's capability ({}), instead of {:.0}%",
        correction * 100.0,
        rate(present.capability.kv_bytes_per_s),
        before * 100.0
    );
    match correction < before {
        true => tracing::warn!("the device needs {ratio:.1} times as long as it was measured to: {counts}"),
        false => tracing::info!("the device needs {ratio:.1} times as long as it was measured to: {counts}"),
    }
}
